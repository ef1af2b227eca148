package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

// NodeInput names a node.
type NodeInput struct {
	SliceInput
	Node string `path:"node" doc:"Name of the node."`
}

// LinkInput names a link.
type LinkInput struct {
	SliceInput
	Link string `path:"link" doc:"Name of the link."`
}

type linkPatchInput struct {
	LinkInput
	Body api.LinkPatch
}

func (s *server) registerOverrides(a huma.API) {
	for _, verb := range []api.NodeVerb{api.NodeStart, api.NodeStop, api.NodePause, api.NodeResume,
		api.NodeRestart} {
		huma.Post(a, "/v1/slices/{slice}/nodes/{node}/"+string(verb),
			func(ctx context.Context, in *NodeInput) (*struct{}, error) {
				return nil, problem(s.Controller.SetPower(ctx, in.Slice, in.Node, verb))
			}, describe(string(verb)+"-node", "Ask a node to "+string(verb)), noContent)
	}
	for word, up := range map[string]bool{"up": true, "down": false} {
		huma.Post(a, "/v1/slices/{slice}/links/{link}/"+word,
			func(ctx context.Context, in *LinkInput) (*struct{}, error) {
				return nil, problem(s.Controller.SetLinkUp(ctx, in.Slice, in.Link, up))
			}, describe("link-"+word, "Take a link "+word), noContent)
	}
	huma.Patch(a, "/v1/slices/{slice}/links/{link}",
		func(ctx context.Context, in *linkPatchInput) (*struct{}, error) {
			return nil, problem(s.Controller.SetLink(ctx, in.Slice, in.Link, in.Body))
		}, describe("set-link", "Change how a running link treats frames"), noContent)
	huma.Delete(a, "/v1/slices/{slice}/links/{link}", func(ctx context.Context, in *LinkInput) (*struct{}, error) {
		return nil, problem(s.Controller.ResetLink(ctx, in.Slice, in.Link))
	}, describe("reset-link", "Give a link the file's values again"), noContent)
}

func noContent(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent }
