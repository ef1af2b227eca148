package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

func (s *server) registerFastPath(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/fastpath", s.fastPath,
		describe("fastpath", "What the fast path does for a slice"))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/fastpath", s.routerFastPath,
		describe("node-fastpath", "What the fast path does for a router"))
	huma.Get(a, "/v1/slices/{slice}/traffic", s.traffic, describe("traffic",
		"What went through the interfaces of a slice"))
	huma.Get(a, "/v1/slices/{slice}/queues", s.queues, describe("queues",
		"What went through the queues of a slice's links"))
	huma.Post(a, "/v1/slices/{slice}/verify", s.verify, describe("verify",
		"Compare the fast path's mirror with the routers' kernels"))
	huma.Post(a, "/v1/slices/{slice}/nodes/{node}/verify", s.verifyNode,
		describe("verify-node", "Compare the mirror with one router's kernel"))
}

func (s *server) fastPath(ctx context.Context, in *PartInput) (*body[api.FastPath], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := api.FastPath{Routers: []api.RouterFastPath{}}
	own := func(ctx context.Context) (api.FastPath, error) { return s.Agent.FastPath(ctx, in.Slice) }
	unreachable, err := gather(ctx, s, *in, http.MethodGet, "fastpath", own, func(f api.FastPath) {
		all.Routers = append(all.Routers, f.Routers...)
		if len(f.Routers) > 0 || s.Cluster == nil { // other machines have nothing to do with it
			all.Memory.Add(f.Memory)
		}
	})
	slices.SortFunc(all.Routers, func(a, b api.RouterFastPath) int { return strings.Compare(a.Node, b.Node) })
	all.Unreachable = unreachable
	return answer(all, err)
}

func (s *server) routerFastPath(ctx context.Context, in *NodeInput) (*body[api.RouterFastPath], error) {
	if _, _, err := s.Find.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	f, err := s.Agent.FastPath(ctx, in.Slice)
	if err != nil {
		return nil, problem(err)
	}
	for _, r := range f.Routers {
		if r.Node == in.Node {
			return &body[api.RouterFastPath]{r}, nil
		}
	}
	return nil, huma.Error404NotFound(
		in.Node + " is no router: only routers are on the fast path")
}

func (s *server) traffic(ctx context.Context, in *PartInput) (*body[api.SliceTraffic], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := api.SliceTraffic{Interfaces: []api.InterfaceTraffic{}, Punts: map[string]map[string]uint64{}}
	own := func(ctx context.Context) (api.SliceTraffic, error) {
		t, err := s.Agent.Traffic(ctx, in.Slice)
		for i := range t.Interfaces {
			if s.Cluster != nil {
				t.Interfaces[i].Host = s.Cluster.Self()
			}
		}
		for i := range t.Tunnels {
			if s.Cluster != nil {
				t.Tunnels[i].Host = s.Cluster.Self()
			}
		}
		for i := range t.ProgramTime {
			if s.Cluster != nil {
				t.ProgramTime[i].Host = s.Cluster.Self()
			}
		}
		return t, err
	}
	unreachable, err := gather(ctx, s, *in, http.MethodGet, "traffic", own, func(t api.SliceTraffic) {
		all.Interfaces = append(all.Interfaces, t.Interfaces...)
		all.Tunnels = append(all.Tunnels, t.Tunnels...)
		all.ProgramTime = append(all.ProgramTime, t.ProgramTime...)
		maps.Copy(all.Punts, t.Punts)
	})
	slices.SortFunc(all.ProgramTime, func(a, b api.ProgramTime) int { return strings.Compare(a.Host, b.Host) })
	slices.SortStableFunc(all.Interfaces, func(a, b api.InterfaceTraffic) int {
		return strings.Compare(a.Node, b.Node)
	})
	all.Unreachable = unreachable
	return answer(all, err)
}

func (s *server) verify(ctx context.Context, in *PartInput) (*body[api.Verification], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := api.Verification{Routers: []string{}, Differences: []api.Difference{}}
	own := func(ctx context.Context) (api.Verification, error) { return s.Agent.Verify(ctx, in.Slice) }
	unreachable, err := gather(ctx, s, *in, http.MethodPost, "verify", own, func(v api.Verification) {
		all.Routers = append(all.Routers, v.Routers...)
		all.Differences = append(all.Differences, v.Differences...)
	})
	slices.Sort(all.Routers)
	slices.SortStableFunc(all.Differences, func(a, b api.Difference) int { return strings.Compare(a.Node, b.Node) })
	all.Unreachable = unreachable
	return answer(all, err)
}

func (s *server) verifyNode(ctx context.Context, in *NodeInput) (*body[api.Verification], error) {
	if _, _, err := s.Find.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	v, err := s.Agent.Verify(ctx, in.Slice, in.Node)
	return answer(v, err)
}

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, problem(err)
	}
	return &body[T]{v}, nil
}
