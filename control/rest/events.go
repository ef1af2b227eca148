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
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/pergola-net/pergola/control/api/eventstream"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
)

type eventsInput struct {
	Slice  string `query:"slice" doc:"Only events of this slice."`
	Follow bool   `query:"follow" doc:"Go on with events to come."`
	Part   string `header:"Pergola-Part" doc:"1: only events of this host."`
}

func (s *server) registerEventStream(a huma.API) {
	registerEvents(s, a, huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: "/v1/events",
		Summary: "Recent events, and those to come", Description: "Events `event`.",
	}, map[string]any{"event": events.Event{}}, s.events)
}

// events streams what happened and happens on all hosts.
func (s *server) events(ctx context.Context, in *eventsInput, send sse.Sender) error {
	each := func(e events.Event) error { return send.Data(e) }
	if s.Cluster != nil && in.Part == "" {
		return s.allEvents(ctx, in, each)
	}
	return s.ownEvents(ctx, in, each)
}

// ownEvents are those of this host.
func (s *server) ownEvents(ctx context.Context, in *eventsInput, each func(events.Event) error) error {
	batch, last := s.Events.Recent(0), uint64(0)
	for {
		for _, e := range batch {
			last = e.Seq
			if in.Slice != "" && e.Slice != in.Slice {
				continue
			}
			if err := each(e); err != nil {
				return err
			}
		}
		if !in.Follow {
			return nil
		}
		var err error
		if batch, err = s.Events.Next(ctx, last); err != nil {
			return err
		}
	}
}

// allEvents are those of all hosts: first the recent events of the hosts that answer, in the order of their times, then
// each as it comes. It does not wait for a host that answers later.
func (s *server) allEvents(ctx context.Context, in *eventsInput, each func(events.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hosts, err := s.Records.Hosts(ctx)
	if err != nil {
		return err
	}
	recent := s.recentEvents(ctx, hosts, in)
	for _, e := range recent {
		if err := each(e); err != nil {
			return err
		}
	}
	if !in.Follow {
		return nil
	}
	return s.followEvents(ctx, hosts, in, recent, each)
}

// recentEvents are those of all hosts, in the order of their times.
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

// followEvents sends what comes, and not again what was sent.
func (s *server) followEvents(ctx context.Context, hosts []store.HostState, in *eventsInput, sent []events.Event,
	send func(events.Event) error) error {
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
		return send(e)
	})
	return ctx.Err()
}

// eventKey identifies an event, whatever time zone its time is in.
func eventKey(e *events.Event) string {
	return fmt.Sprint(e.Time.UnixNano(), e.Seq, e.Kind, e.Slice, "/", e.Node, e.Link)
}

// eachEvents reads the streams of all hosts until they end. Hosts that do not answer are left out.
func (s *server) eachEvents(ctx context.Context, hosts []store.HostState, in *eventsInput,
	each func(events.Event) error) {
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
					return nil // each host publishes it of the same slice
				}
				return each(e)
			})
		})
	}
	if err := s.ownEvents(ctx, in, each); err != nil {
		cancel() // the client has gone
	}
	streams.Wait()
}
