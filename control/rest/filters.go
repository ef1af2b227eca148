package rest

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

// maxFilters is in bytes: those of all filters that a host can have.
const maxFilters = 64 << 20

type filterChangeInput struct {
	NodeInput
	Body api.FilterChange
}

type filterListInput struct {
	NodeInput
	Body api.FilterList
}

func (s *server) registerFilters(a huma.API) {
	const path = "/v1/slices/{slice}/nodes/{node}/filters"
	large := func(op *huma.Operation) { op.MaxBodyBytes, op.BodyReadTimeout = maxFilters, topologyTimeout }
	huma.Get(a, path, s.filters, describe("filters", "The filters of a program node, with their hits"))
	huma.Patch(a, path, s.changeFilters, describe("change-filters", "Delete and insert filters of a program node"),
		noContent, large)
	huma.Put(a, path, s.replaceFilters, describe("replace-filters", "Replace all filters of a program node"),
		noContent, large)
}

func (s *server) filters(ctx context.Context, in *NodeInput) (*body[api.NodeFilters], error) {
	if err := s.hasFilters(ctx, in); err != nil {
		return nil, err
	}
	all, err := s.Agent.Filters(ctx, in.Slice, in.Node)
	return answer(all, err)
}

func (s *server) changeFilters(ctx context.Context, in *filterChangeInput) (*struct{}, error) {
	if err := s.hasFilters(ctx, &in.NodeInput); err != nil {
		return nil, err
	}
	return nil, problem(s.Agent.ChangeFilters(ctx, in.Slice, in.Node, in.Body))
}

func (s *server) replaceFilters(ctx context.Context, in *filterListInput) (*struct{}, error) {
	if err := s.hasFilters(ctx, &in.NodeInput); err != nil {
		return nil, err
	}
	return nil, problem(s.Agent.ReplaceFilters(ctx, in.Slice, in.Node, in.Body.Filters))
}

// hasFilters refuses nodes without a packet program.
func (s *server) hasFilters(ctx context.Context, in *NodeInput) error {
	_, n, err := s.Find.Node(ctx, in.Slice, in.Node)
	if err != nil {
		return problem(err)
	}
	if n.Program == nil {
		return huma.Error404NotFound(in.Node + " is a " + string(n.Kind) +
			": only nodes of kind program have filters")
	}
	return nil
}
