package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api/eventstream"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
)

// allEvents streams what happened and happens on all hosts: first the recent events of those that answer, in the order of their times, then
// each as it comes. A host that answers later is not waited for.
func (s *server) allEvents(_ context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	return sse(func(ctx context.Context, send sender) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		hosts, err := s.Store.Hosts(ctx)
		if err != nil {
			return err
		}
		recent := s.recentEvents(ctx, hosts, in)
		for _, e := range recent {
			if err := send("event", e); err != nil {
				return err
			}
		}
		if !in.Follow {
			return nil
		}
		return s.followEvents(ctx, hosts, in, recent, send)
	}), nil
}

// recentEvents of all hosts, sorted.
func (s *server) recentEvents(ctx context.Context, hosts []store.HostState, in *eventsInput) []events.Event {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	past := *in
	past.Follow = false
	var mu sync.Mutex // guards all
	var all []events.Event
	s.eachEvents(ctx, hosts, &past, func(e events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e)
		return nil
	})
	slices.SortStableFunc(all, func(a, b events.Event) int { return a.Time.Compare(b.Time) })
	return all
}

// followEvents sends what comes, and not what was sent.
func (s *server) followEvents(ctx context.Context, hosts []store.HostState, in *eventsInput, sent []events.Event, send sender) error {
	var mu sync.Mutex // guards known and send
	known := make(map[string]bool, len(sent))
	for i := range sent {
		known[eventKey(&sent[i])] = true
	}
	s.eachEvents(ctx, hosts, in, func(e events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if key := eventKey(&e); known[key] {
			delete(known, key)
			return nil
		}
		return send("event", e)
	})
	return ctx.Err()
}

// eventKey tells an event from others, whichever clock's zone it came with.
func eventKey(e *events.Event) string {
	return fmt.Sprint(e.Time.UnixNano(), e.Seq, e.Kind, e.Slice, "/", e.Node, e.Link)
}

// eachEvents reads the streams of all hosts until they end. Hosts that do not answer have nothing to say.
func (s *server) eachEvents(ctx context.Context, hosts []store.HostState, in *eventsInput, each func(events.Event) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"slice": {in.Slice}, "follow": {strconv.FormatBool(in.Follow)}}
	var streams sync.WaitGroup
	for _, h := range hosts {
		if !h.Alive || !s.elsewhere(h.Name) {
			continue
		}
		streams.Go(func() {
			resp, err := s.send(ctx, &h, http.MethodGet, "/v1/events?"+query.Encode(), nil)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			_ = eventstream.Read(resp.Body, func(_ string, data []byte) error {
				var e events.Event
				if err := json.Unmarshal(data, &e); err != nil {
					return err
				}
				if e.Kind == events.SliceGone {
					return nil // each host says so of the same slice
				}
				return each(e)
			})
		})
	}
	err := s.ownEvents(ctx, in, func(_ string, data any) error {
		e, ok := data.(events.Event)
		if !ok {
			return nil
		}
		return each(e)
	})
	if err != nil {
		cancel() // the client has gone
	}
	streams.Wait()
}
