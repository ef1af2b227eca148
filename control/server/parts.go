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

// start sets the parts to work. Each ends when ctx does, and the end of one for another reason stops all.
func (s *server) start(ctx context.Context, stop context.CancelCauseFunc, listener net.Listener) *sync.WaitGroup {
	var parts sync.WaitGroup
	run := func(what string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	handler := s.handler()
	run("serve requests", func() error { return s.serve(ctx, listener, handler) })
	run("run the agent", func() error { return s.expelled(s.agent.Run(ctx)) })
	run("keep house", func() error { return s.keepHouse(ctx) })
	run("keep the store", func() error {
		select {
		case <-s.store.Dead():
			return s.store.Err()
		case <-ctx.Done():
			return nil
		}
	})
	if s.cluster != nil {
		run("serve other machines", func() error { return s.serveMembers(ctx, s.door, handler) })
		run("keep the membership", func() error { return s.cluster.keep(ctx) })
	}
	if s.cluster != nil && s.cluster.IsServer() {
		run("lead the cluster", func() error { return s.lead(ctx) })
	}
	if s.ExitWhenIdle {
		run("be idle", func() error {
			s.idle.wait(ctx)
			return errIdle
		})
	}
	return &parts
}

func (s *server) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	web := &http.Server{Handler: handler, ConnContext: rest.WithPeer, ConnState: s.idle.connState, ReadHeaderTimeout: headerTimeout}
	return serveUntil(ctx, web, func() error { return web.Serve(listener) })
}

// serveUntil serves until ctx ends; then requests have a moment to end, too.
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
	end() // streams would go on for ever
	patient, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := web.Shutdown(patient); err != nil {
		return errors.Join(err, web.Close())
	}
	return nil
}

// lead does the duties that one server has for all, while it is that one.
func (s *server) lead(ctx context.Context) error {
	err := s.store.Campaign(ctx, "controller", s.Host, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		var other sync.WaitGroup
		other.Go(func() { s.cluster.watchAuthority(ctx, s.events) })
		defer other.Wait()
		defer end()
		return s.controller.Lead(ctx)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// storePause is how long a store is left alone that gave no answer.
const storePause = time.Second

// expelled tells a machine whose host was removed what to do.
func (s *server) expelled(err error) error {
	if s.cluster == nil || !errors.Is(err, store.ErrNoHost) {
		return err
	}
	name := ""
	if errors.Is(err, store.ErrReplaced) {
		name = " --host NAME"
	}
	return fmt.Errorf("%w: remove %s here, and use a new token (pergola %s --join URL --token TOKEN%s, as `pergola token create` prints it)", err, s.cluster.kept.dir, s.Role.Word(), name)
}

// keepHouse follows the store: it counts slices, tells of those that have gone, and drops blobs that no slice names.
func (s *server) keepHouse(ctx context.Context) error {
	changes, err := s.store.Watch(ctx)
	for s.cluster != nil && err != nil { // its servers may be away
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(storePause):
		}
		changes, err = s.store.Watch(ctx)
	}
	if err != nil {
		return err
	}
	s.takeStock(ctx)
	for c := range changes {
		switch c.What {
		case store.Gone:
			s.events.Publish(events.Event{Slice: c.Slice, Kind: events.SliceGone, Message: "nothing is left of it"})
			s.takeStock(ctx)
		case store.SpecChanged, store.Resync:
			s.takeStock(ctx)
		case store.OverridesChanged, store.StatusChanged, store.HostsChanged:
		}
	}
	return nil
}

func (s *server) takeStock(ctx context.Context) {
	records, err := s.store.Slices(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Error("list slices", "error", err)
		}
		return
	}
	s.idle.setSlices(len(records))
	var blobs []string
	for _, r := range records {
		if r.Corrupt {
			return // it may name any of them
		}
		blobs = append(blobs, r.Blobs...)
	}
	if err := s.blobs.Keep(blobs); err != nil {
		s.Log.Error("drop blobs that no slice names", "error", err)
	}
	if s.cluster != nil {
		s.cluster.wantBlobs(ctx, s, records)
	}
}
