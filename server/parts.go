package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/events"
	"github.com/pergola-net/pergola/store"
)

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
	run("serve requests", func() error { return s.serve(ctx, listener) })
	run("run the agent", func() error { return s.agent.Run(ctx) })
	run("keep house", func() error { return s.keepHouse(ctx) })
	run("keep the store", func() error {
		select {
		case <-s.store.Dead():
			return s.store.Err()
		case <-ctx.Done():
			return nil
		}
	})
	if s.ExitWhenIdle {
		run("be idle", func() error {
			s.idle.wait(ctx)
			return errIdle
		})
	}
	return &parts
}

func (s *server) serve(ctx context.Context, listener net.Listener) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	web := &http.Server{
		Handler: s.handler(), ConnContext: api.WithPeer, ConnState: s.idle.connState,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout,
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
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

// keepHouse follows the store: it counts slices, tells of those that have gone, and drops blobs that no slice names.
func (s *server) keepHouse(ctx context.Context) error {
	changes, err := s.store.Watch(ctx)
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
		case store.OverridesChanged, store.StatusChanged:
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
}
