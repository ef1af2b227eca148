package rest

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
)

type logsInput struct {
	NodeInput
	Tail   int  `query:"tail" minimum:"0" doc:"Last lines only; 0: all."`
	Follow bool `query:"follow" doc:"Go on with what is written from now on."`
}

type captureInput struct {
	NodeInput
	Interface string `path:"interface" doc:"Name of the interface."`
	Filter    string `query:"filter" doc:"As tcpdump takes it."`
	Snaplen   int    `query:"snaplen" minimum:"0" doc:"Bytes kept of a frame; 0: all."`
	Count     int    `query:"count" minimum:"0" doc:"Frames; 0: until the client leaves."`
}

type eventsInput struct {
	Slice  string `query:"slice" doc:"Only events of this slice."`
	Follow bool   `query:"follow" doc:"Go on with events to come."`
	Part   string `header:"Pergola-Part" doc:"1: only events of this host."`
}

func (s *server) registerStreams(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/progress", s.progress, describe("watch-slice", "What the host reports, as it changes"),
		streams(a, "text/event-stream", "Events `progress`; the last has `gone` set.", api.Progress{}))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/logs", s.logs, describe("node-logs", "What a node's first process wrote"),
		streams(a, "text/plain", "The output.", nil))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/interfaces/{interface}/capture", s.capture, describe("capture", "Frames of an interface"),
		streams(a, "application/vnd.tcpdump.pcap", "A pcap file that grows.", nil))
	huma.Get(a, "/v1/events", s.events, describe("events", "Recent events, and those to come"),
		streams(a, "text/event-stream", "Events `event`.", events.Event{}))
}

// streams describes an answer that comes bit by bit.
func streams(a huma.API, contentType, description string, event any) func(*huma.Operation) {
	return func(op *huma.Operation) {
		media := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: description}}
		if event != nil {
			media.Schema.Extensions = map[string]any{"x-event-data": huma.SchemaFromType(a.OpenAPI().Components.Schemas, typeOf(event))}
		}
		op.Responses = map[string]*huma.Response{"200": {Description: description, Content: map[string]*huma.MediaType{contentType: media}}}
	}
}

func (s *server) logs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	if _, _, err := s.Controller.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	return bytesOf("text/plain; charset=utf-8", func(ctx context.Context, w *flushWriter) error {
		return s.Agent.Logs(ctx, in.Slice, in.Node, api.LogOptions{Tail: in.Tail, Follow: in.Follow}, w)
	}), nil
}

func (s *server) capture(ctx context.Context, in *captureInput) (*huma.StreamResponse, error) {
	if err := s.Controller.HasInterface(ctx, in.Slice, in.Node, in.Interface); err != nil {
		return nil, problem(err)
	}
	return bytesOf("application/vnd.tcpdump.pcap", func(ctx context.Context, w *flushWriter) error {
		opt := api.CaptureOptions{Filter: in.Filter, Snaplen: in.Snaplen, Count: in.Count}
		return s.Agent.Capture(ctx, in.Slice, in.Node, in.Interface, opt, w)
	}), nil
}

func (s *server) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if s.Cluster != nil && in.Part == "" {
		return s.allEvents(ctx, in)
	}
	return sse(func(ctx context.Context, send sender) error { return s.ownEvents(ctx, in, send) }), nil
}

// ownEvents are those of this host.
func (s *server) ownEvents(ctx context.Context, in *eventsInput, send sender) error {
	batch, last := s.Events.Recent(0), uint64(0)
	for {
		for _, e := range batch {
			last = e.Seq
			if in.Slice != "" && e.Slice != in.Slice {
				continue
			}
			if err := send("event", e); err != nil {
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
