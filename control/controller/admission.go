package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// admission is what was read before a version of a slice is admitted, and must be as it was when the version is stored.
type admission struct {
	overrides     slice.Overrides // what was changed of the slice by hand
	unchanged     store.Condition // they are these
	nothingPlaced store.Condition
}

// admission begins to admit a version of a slice: what it is admitted by is read after that.
func (c *Controller) admission(ctx context.Context, name string) (a admission, err error) {
	if a.nothingPlaced, err = c.store.NothingPlaced(ctx); err != nil {
		return a, err
	}
	if a.overrides, a.unchanged, err = c.store.OverridesUnchanged(ctx, name); err != nil {
		return a, fmt.Errorf("read what was changed by hand of network %s: %w", name, err)
	}
	return a, nil
}

// of gives the conditions of a version, which follows prev: what takes nothing more of hosts needs nobody's leave, and
// ends no other admission.
func (a admission) of(prev, next *slice.Slice) []store.Condition {
	if takesMore(prev, next, a.overrides) {
		return []store.Condition{a.unchanged, a.nothingPlaced}
	}
	return []store.Condition{a.unchanged}
}

// takesMore reports whether a version of a slice takes something of a host that the one before, which may be nil, does
// not take. Queues are those that the overrides make of the slice's. Where this is not certain, it is true.
func takesMore(prev, next *slice.Slice, o slice.Overrides) bool {
	if prev == nil {
		prev = &slice.Slice{}
	}
	was := usageOf(prev)
	for host, is := range usageOf(next) {
		if is.exceeds(was[host]) {
			return true
		}
	}
	before := make(map[string]*slice.Node, len(prev.Nodes))
	for i := range prev.Nodes {
		before[prev.Nodes[i].Name] = &prev.Nodes[i]
	}
	had, has := prev.Queueing(o.Shapes), next.Queueing(o.ShapesFor(prev, next))
	return slices.ContainsFunc(next.Nodes, func(n slice.Node) bool {
		queues, old := has[n.Name], before[n.Name]
		return queues != slice.Queueing{} && (old == nil || old.Host != n.Host || queues.Exceeds(had[n.Name]) ||
			old.Reserve != n.Reserve) // they may be of the pool now
	})
}

// exceeds reports whether something of u is more than in other.
func (u usage) exceeds(other usage) bool {
	for _, more := range u.Minus(other.Resources) {
		if more > 0 {
			return true
		}
	}
	for port := range u.ports {
		if _, had := other.ports[port]; !had {
			return true
		}
	}
	return u.rate > other.rate
}
