package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

func (s *server) registerPrograms(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/programs", s.programs,
		describe("programs", "Packet programs of a slice's nodes, and what they count"))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/program", s.program,
		describe("node-program", "The packet program of a node, and what it counts"))
}

func (s *server) programs(ctx context.Context, in *PartInput) (*body[api.SlicePrograms], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := api.SlicePrograms{Programs: []api.NodeProgram{}}
	own := func(ctx context.Context) (part api.SlicePrograms, err error) {
		part.Programs, err = s.Agent.Programs(ctx, in.Slice)
		for i := range part.Programs {
			if s.Cluster != nil {
				part.Programs[i].Host = s.Cluster.Self()
			}
		}
		return part, err
	}
	unreachable, err := gather(ctx, s, *in, http.MethodGet, "programs", own, func(part api.SlicePrograms) {
		all.Programs = append(all.Programs, part.Programs...)
	})
	slices.SortFunc(all.Programs, func(a, b api.NodeProgram) int { return strings.Compare(a.Node, b.Node) })
	all.Unreachable = unreachable
	return answer(all, err)
}

// program is asked of the node's host (atHost).
func (s *server) program(ctx context.Context, in *NodeInput) (*body[api.NodeProgram], error) {
	_, n, err := s.Find.Node(ctx, in.Slice, in.Node)
	if err != nil {
		return nil, problem(err)
	}
	if n.Program == nil {
		return nil, huma.Error404NotFound(in.Node + " is a " + string(n.Kind) +
			": only nodes of kind program have packet programs")
	}
	all, err := s.Agent.Programs(ctx, in.Slice, in.Node)
	if err != nil {
		return nil, problem(err)
	}
	if len(all) != 1 {
		return nil, huma.Error404NotFound("the host of " + in.Node + " does not know it yet")
	}
	if s.Cluster != nil {
		all[0].Host = s.Cluster.Self()
	}
	return &body[api.NodeProgram]{all[0]}, nil
}
