package rest

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
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

func (s *server) registerStreams(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/logs", s.logs,
		describe("node-logs", "What a node's first process wrote"), streams("text/plain", "The output."))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/interfaces/{interface}/capture", s.capture,
		describe("capture", "Frames of an interface"),
		streams("application/vnd.tcpdump.pcap", "A pcap file that grows."))
}

// streams describes an answer that is a stream of bytes.
func streams(contentType, description string) func(*huma.Operation) {
	return func(op *huma.Operation) {
		media := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: description}}
		op.Responses = map[string]*huma.Response{
			"200": {Description: description, Content: map[string]*huma.MediaType{contentType: media}},
		}
	}
}

func (s *server) logs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	if _, _, err := s.Find.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	return bytesOf("text/plain; charset=utf-8", func(ctx context.Context, w *flushWriter) error {
		return s.Agent.Logs(ctx, in.Slice, in.Node, api.LogOptions{Tail: in.Tail, Follow: in.Follow}, w)
	}), nil
}

func (s *server) capture(ctx context.Context, in *captureInput) (*huma.StreamResponse, error) {
	if err := s.Find.HasInterface(ctx, in.Slice, in.Node, in.Interface); err != nil {
		return nil, problem(err)
	}
	return bytesOf("application/vnd.tcpdump.pcap", func(ctx context.Context, w *flushWriter) error {
		opt := api.CaptureOptions{Filter: in.Filter, Snaplen: in.Snaplen, Count: in.Count}
		return s.Agent.Capture(ctx, in.Slice, in.Node, in.Interface, opt, w)
	}), nil
}
