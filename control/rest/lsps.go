package rest

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// LSPInput names an LSP.
type LSPInput struct {
	SliceInput
	LSP string `path:"lsp" doc:"Name of the LSP."`
}

// LSPsInput names LSPs of a slice.
type LSPsInput struct {
	PartInput
	LSPs []string `query:"lsp,explode" doc:"Names of LSPs; none: all."`
}

type lspAddInput struct {
	SliceInput
	Body topology.LSP
}

type lspPatchInput struct {
	LSPInput
	Body api.LSPPatch
}

func (s *server) registerLSPs(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/lsps", s.lsps, describe("lsps", "How the label-switched paths of a slice are"))
	huma.Post(a, "/v1/slices/{slice}/lsps", func(ctx context.Context, in *lspAddInput) (*body[slice.LSP], error) {
		added, err := s.Controller.AddLSP(ctx, in.Slice, in.Body)
		return answer(added, err)
	}, describe("add-lsp", "Add a label-switched path to a slice that runs"))
	huma.Patch(a, "/v1/slices/{slice}/lsps/{lsp}", func(ctx context.Context, in *lspPatchInput) (*struct{}, error) {
		return nil, problem(s.Controller.SetLSP(ctx, in.Slice, in.LSP, in.Body))
	}, describe("set-lsp", "Change a label-switched path"), noContent)
	huma.Post(a, "/v1/slices/{slice}/lsps/{lsp}/reroute", func(ctx context.Context, in *LSPInput) (*struct{},
		error) {
		return nil, problem(s.Controller.RerouteLSP(ctx, in.Slice, in.LSP))
	}, describe("reroute-lsp", "Look for the way of a label-switched path again"), noContent)
	huma.Delete(a, "/v1/slices/{slice}/lsps/{lsp}", func(ctx context.Context, in *LSPInput) (*struct{}, error) {
		return nil, problem(s.Controller.RemoveLSP(ctx, in.Slice, in.LSP))
	}, describe("remove-lsp", "Remove a label-switched path that was added to a slice while it ran"), noContent)
}

func (s *server) lsps(ctx context.Context, in *LSPsInput) (*body[api.SliceLSPs], error) {
	spec, wanted, err := s.Find.LSPs(ctx, in.Slice, in.LSPs)
	if err != nil {
		return nil, problem(err)
	}
	own := func(ctx context.Context) (part api.SliceLSPs, err error) {
		part, err = s.Agent.LSPs(ctx, in.Slice, in.LSPs...)
		if s.Cluster == nil {
			return part, err
		}
		for i := range part.Hops {
			part.Hops[i].Host = s.Cluster.Self()
		}
		for i := range part.Signalled {
			part.Signalled[i].Host = s.Cluster.Self()
		}
		return part, err
	}
	verb := "lsps"
	if len(in.LSPs) > 0 {
		verb += "?" + url.Values{"lsp": in.LSPs}.Encode()
	}
	all := api.SliceLSPs{Hops: []api.LSPHop{}, Wanted: wanted}
	all.Unreachable, err = gather(ctx, s, in.PartInput, http.MethodGet, verb, own, func(part api.SliceLSPs) {
		all.Hops = append(all.Hops, part.Hops...)
		all.Signalled = append(all.Signalled, part.Signalled...)
		if all.Generation == 0 || part.Generation != 0 && part.Generation < all.Generation {
			all.Generation = part.Generation
		}
	})
	all.Outdated = all.Generation != 0 && all.Generation < spec.Generation
	orderHops(spec, all.Hops)
	slices.SortFunc(all.Signalled, func(a, b api.SignalledLSP) int { return cmp.Compare(a.LSP, b.LSP) })
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
