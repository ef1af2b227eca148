package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// FastPath says what the fast path does for the routers of a slice.
func (a *Agent) FastPath(ctx context.Context, name string) (api.FastPath, error) {
	a.mu.Lock()
	w := a.wishes[name]
	a.mu.Unlock()
	if w == nil {
		return api.FastPath{}, fmt.Errorf("slice %s is not on this host", name)
	}
	return a.fastPathOf(ctx, w)
}

func (a *Agent) fastPathOf(ctx context.Context, w *plan.Input) (api.FastPath, error) {
	f := api.FastPath{Routers: []api.RouterFastPath{}, Memory: a.fast.usage()}
	at := a.place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if n.Kind != slice.Router || !at.Owns(n) {
			continue
		}
		id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
		r := a.fast.router(id)
		r.Node = n.Name
		var err error
		if r.Punts, err = a.fast.punts(ctx, a.dataPath(), id); err != nil {
			return api.FastPath{}, err
		}
		f.Routers = append(f.Routers, r)
	}
	return f, nil
}

// router says what the fast path does for one router.
func (f *fastPath) router(id sliver.ID) (r api.RouterFastPath) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, there := f.routers[id]
	switch {
	case f.trouble == nil && !there:
		return off("it does not run", "")
	case known.off:
		return off("fastpath: off in the topology", "")
	case f.captures[id] > 0:
		return off("pergola capture takes its frames", "")
	}
	if f.trouble != nil || f.refused[id] != nil {
		return off("it cannot be mirrored", f.troubleLocked(id))
	}
	st, err := f.mirror.Status(id.String())
	if err != nil {
		return off("it cannot be mirrored", err.Error())
	}
	r = api.RouterFastPath{
		IPv4: api.FamilyFastPath{On: st.IPv4.FastPath, Why: st.IPv4.Why}, IPv6: api.FamilyFastPath{On: st.IPv6.FastPath, Why: st.IPv6.Why},
		Routes: st.IPv4.Routes + st.IPv6.Routes, Neighbours: st.Neighbours, Resyncs: uint64(st.Resyncs),
	}
	for _, leg := range st.Off {
		r.Interfaces = append(r.Interfaces, api.InterfaceFastPath{Interface: leg.Interface, IPv4: leg.IPv4, IPv6: leg.IPv6})
	}
	return r
}

// off is a router whose kernel forwards all frames.
func off(why, trouble string) api.RouterFastPath {
	family := api.FamilyFastPath{Why: []string{why}}
	return api.RouterFastPath{IPv4: family, IPv6: family, Trouble: trouble}
}

// usage says how full the fast path's memory is.
func (f *fastPath) usage() api.FastPathMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		return api.FastPathMemory{}
	}
	u := f.memory.Usage()
	share := func(used, bound int) api.Share { return api.Share{Used: int64(used), Bound: int64(bound)} }
	return api.FastPathMemory{
		Routers: share(u.Routers, u.RoutersBound), Nexthops: share(u.Nexthops, u.NexthopsBound),
		Neighbours: share(u.Neighbours, u.NeighboursBound), Bytes: api.Share{Used: u.Bytes, Bound: u.BytesBound},
	}
}

// Verify compares the mirror with the kernels of routers: of the nodes named, or of all that are mirrored.
func (a *Agent) Verify(ctx context.Context, name string, nodes ...string) (api.Verification, error) {
	a.mu.Lock()
	w := a.wishes[name]
	a.mu.Unlock()
	if w == nil {
		return api.Verification{}, fmt.Errorf("slice %s is not on this host", name)
	}
	v := api.Verification{Routers: []string{}, Differences: []api.Difference{}}
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		named := slices.Contains(nodes, n.Name)
		if n.Kind != slice.Router || len(nodes) > 0 && !named {
			continue
		}
		m := a.fast.mirrorOf(sliver.ID{Slice: w.Spec.ID, Node: n.Name})
		if m == nil && named {
			return v, fmt.Errorf("%s is not mirrored: `pergola inspect %[1]s --fastpath` says why", n.Name)
		}
		if m == nil {
			continue
		}
		found, err := m.Verify(ctx, sliver.ID{Slice: w.Spec.ID, Node: n.Name}.String())
		if err != nil {
			return v, fmt.Errorf("verify %s: %w", n.Name, err)
		}
		v.Routers = append(v.Routers, n.Name)
		for _, d := range found {
			v.Differences = append(v.Differences, api.Difference{Node: n.Name, What: d.What, Kernel: d.Kernel, Mirror: d.Mirror})
		}
	}
	slices.SortStableFunc(v.Differences, func(a, b api.Difference) int { return cmp.Compare(a.Node, b.Node) })
	return v, nil
}

// mirrorOf gives the mirror if it is to be of a router.
func (f *fastPath) mirrorOf(id sliver.ID) mirrorKeeper {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.routers[id]; !known || f.refused[id] != nil {
		return nil
	}
	return f.mirror
}
