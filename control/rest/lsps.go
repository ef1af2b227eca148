package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func (s *server) lsps(ctx context.Context, in *PartInput) (*body[api.SliceLSPs], error) {
	spec, _, err := s.Controller.Slice(ctx, in.Slice)
	if err != nil {
		return nil, problem(err)
	}
	own := func(ctx context.Context) (part api.SliceLSPs, err error) {
		part.Hops, err = s.Agent.LSPs(ctx, in.Slice)
		for i := range part.Hops {
			if s.Cluster != nil {
				part.Hops[i].Host = s.Cluster.Self()
			}
		}
		return part, err
	}
	all := api.SliceLSPs{Hops: []api.LSPHop{}}
	all.Unreachable, err = gather(ctx, s, *in, http.MethodGet, "lsps", own, func(part api.SliceLSPs) {
		all.Hops = append(all.Hops, part.Hops...)
	})
	orderHops(spec, all.Hops)
	return answer(all, err)
}

// orderHops puts the routers of several hosts in the order of the slice's LSPs and their paths.
func orderHops(spec *slice.Slice, all []api.LSPHop) {
	type hop struct{ lsp, node string }
	place := map[hop]int{}
	for i := range spec.LSPs {
		for _, h := range spec.LSPs[i].Hops {
			place[hop{spec.LSPs[i].Name, h.Node}] = len(place)
		}
	}
	slices.SortFunc(all, func(a, b api.LSPHop) int { return place[hop{a.LSP, a.Node}] - place[hop{b.LSP, b.Node}] })
}
