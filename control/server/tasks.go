package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent"
)

var _ interface {
	rest.Agent
	rest.Measured
} = (*agent.Agent)(nil)

// start starts the server's tasks. Each ends with ctx; one that fails before stops all.
func (s *server) start(ctx context.Context, stop context.CancelCauseFunc, listener net.Listener) *sync.WaitGroup {
	var tasks sync.WaitGroup
	run := func(what string, task func() error) {
		tasks.Go(func() {
			if err := task(); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	handler := s.handler()
	run("serve requests", func() error { return s.serve(ctx, listener, handler) })
	run("run the agent", func() error { return s.rejoinAdvice(s.agent.Run(ctx)) })
	run("collect garbage", func() error { return s.collectGarbage(ctx) })
	if s.store != nil {
		run("watch the store", func() error {
			select {
			case <-s.store.Dead():
				return s.store.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	if s.session != nil {
		run("withdraw grants", func() error { s.pruneTerms(ctx); return nil })
		run("follow the servers", func() error { return s.keepServers(ctx) })
	}
	if s.desk != nil {
		run("serve agents", func() error { s.desk.Run(ctx); return nil })
	}
	if s.members != nil {
		run("serve other machines", func() error { return s.serveMembers(ctx, s.members, handler) })
	}
	if s.cluster != nil {
		run("keep the membership", func() error { return s.cluster.keep(ctx) })
	}
	if s.cluster != nil && s.cluster.IsServer() {
		run("lead the cluster", func() error { return s.lead(ctx) })
	}
	if s.ExitWhenIdle {
		run("wait until idle", func() error {
			s.idle.wait(ctx)
			return errIdle
		})
	}
	return &tasks
}

func (s *server) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	web := &http.Server{
		Handler: handler, ConnContext: rest.WithPeer, ConnState: s.idle.connState,
		ReadHeaderTimeout: headerTimeout,
	}
	return serveUntil(ctx, web, func() error { return web.Serve(listener) })
}

// serveUntil serves until ctx ends, and then waits up to stopTimeout for requests to end.
func serveUntil(ctx context.Context, web *http.Server, serve func() error) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	web.BaseContext = func(net.Listener) context.Context { return requests }
	failed := make(chan error, 1)
	go func() { failed <- serve() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end() // streams do not end by themselves
	patient, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := web.Shutdown(patient); err != nil {
		return errors.Join(err, web.Close())
	}
	return nil
}

// lead carries out the duties of the leader while this server is elected.
func (s *server) lead(ctx context.Context) error {
	err := s.store.Campaign(ctx, "controller", s.Host, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { s.cluster.watchAuthority(ctx, s.events) })
		defer watch.Wait()
		defer end()
		return s.controller.Lead(ctx)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// storePause is between two attempts to watch a store that does not answer.
const storePause = time.Second

// rejoinAdvice adds to the error of a machine whose host was removed what to do.
func (s *server) rejoinAdvice(err error) error {
	if s.cluster == nil || !errors.Is(err, store.ErrNoHost) {
		return err
	}
	name := ""
	if errors.Is(err, store.ErrReplaced) {
		name = " --host NAME"
	}
	return fmt.Errorf("%w: remove %s here, and use a new token "+
		"(pergola %s --join URL --token TOKEN%s, as `pergola token create` prints it)",
		err, s.cluster.dir.path(""), s.Role.Word(), name)
}

// collectGarbage watches what is known of slices: it counts them, publishes an event when one has gone, and removes
// blobs that no slice names.
func (s *server) collectGarbage(ctx context.Context) error {
	watch := s.watch()
	changes, err := watch(ctx)
	for s.cluster != nil && err != nil { // the servers may be unreachable
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(storePause):
		}
		changes, err = watch(ctx)
	}
	if err != nil {
		return err
	}
	s.reviewSlices(ctx)
	for c := range changes {
		switch c.What {
		case store.Gone:
			s.events.Publish(events.Event{Slice: c.Slice, Kind: events.SliceGone,
				Message: "nothing is left of it"})
			s.reviewSlices(ctx)
		case store.SpecChanged, store.Resync:
			s.reviewSlices(ctx)
		case store.OverridesChanged, store.StatusChanged, store.LinkStateChanged, store.HostsChanged:
		}
	}
	return nil
}

func (s *server) watch() func(context.Context) (<-chan store.Change, error) {
	if s.store == nil {
		return s.near.Watch
	}
	return s.store.Watch
}

func (s *server) reviewSlices(ctx context.Context) {
	records, err := s.records().Slices(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Error("list networks", "error", err)
		}
		return
	}
	s.idle.setSlices(len(records))
	var blobs []string
	for _, r := range records {
		if r.Corrupt {
			return // its specification may name any blob
		}
		blobs = append(blobs, r.Blobs...)
	}
	if err := s.blobs.Keep(blobs); err != nil {
		s.Log.Error("remove blobs that no network names", "error", err)
	}
	if s.cluster != nil {
		s.cluster.fetchMissingBlobs(ctx, s, records)
	}
}
