package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// FastPath says what the fast path does for the routers of a slice.
func (s *Server) FastPath(ctx context.Context, name string) (api.FastPath, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return api.FastPath{}, err
	}
	return s.fastPathOf(ctx, w)
}

func (s *Server) fastPathOf(ctx context.Context, w *plan.Input) (api.FastPath, error) {
	f := api.FastPath{Routers: []api.RouterFastPath{}, Memory: s.fastPath.Usage()}
	at := s.inputs.Place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if n.Kind != slice.Router || !at.Owns(n) {
			continue
		}
		id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
		r := s.fastPath.Router(id)
		r.Node = n.Name
		var err error
		if r.Punts, err = s.fastPath.Punts(ctx, id); err != nil {
			return api.FastPath{}, err
		}
		f.Routers = append(f.Routers, r)
	}
	return f, nil
}

// FastPathMemory says how full the fast path's memory is.
func (s *Server) FastPathMemory() api.FastPathMemory { return s.fastPath.Usage() }

// Verify compares the mirror with the kernels of routers: of the nodes named, or of all that are mirrored.
func (s *Server) Verify(ctx context.Context, name string, nodes ...string) (api.Verification, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return api.Verification{}, err
	}
	v := api.Verification{Routers: []string{}, Differences: []api.Difference{}}
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		named := slices.Contains(nodes, n.Name)
		if n.Kind != slice.Router || len(nodes) > 0 && !named {
			continue
		}
		found, err := s.fastPath.Verify(ctx, sliver.ID{Slice: w.Spec.ID, Node: n.Name})
		switch {
		case errors.Is(err, fastpath.ErrNotMirrored) && named:
			return v, fmt.Errorf("%s is not mirrored: `pergola inspect %[1]s --fastpath` says why", n.Name)
		case errors.Is(err, fastpath.ErrNotMirrored):
			continue
		case err != nil:
			return v, err
		}
		v.Routers = append(v.Routers, n.Name)
		for _, d := range found {
			v.Differences = append(v.Differences, api.Difference{
				Node: n.Name, What: d.What, Kernel: d.Kernel, Mirror: d.Mirror,
			})
		}
	}
	slices.SortStableFunc(v.Differences, func(a, b api.Difference) int { return cmp.Compare(a.Node, b.Node) })
	return v, nil
}
