package differential

import (
	"slices"

	"github.com/pergola-net/pergola/lab/vnet"
)

// objects are a node's next hop objects.
type objects struct {
	all []vnet.Object
	ids map[string]uint32 // by what they say
}

// add gives the number of an object that says so.
func (o *objects) add(new vnet.Object) uint32 {
	if o.ids == nil {
		o.ids = map[string]uint32{}
	}
	said := new.String()
	if id := o.ids[said]; id != 0 {
		return id
	}
	new.ID = uint32(len(o.all) + 1)
	o.ids[said] = new.ID
	o.all = append(o.all, new)
	return new.ID
}

// nameObjects lets most routes of routers name objects in place of next hops. What leads to several is a group.
func (g *graph) nameObjects() {
	for _, n := range g.nodes {
		for i := range n.routes {
			r := &n.routes[i]
			onLink := func(h vnet.Hop) bool { return !h.Via.IsValid() }
			if !n.router || len(r.Hops) == 0 || slices.ContainsFunc(r.Hops, onLink) || g.rng.IntN(4) == 0 {
				continue
			}
			var group []vnet.Member
			for _, h := range r.Hops {
				weight := h.Weight
				h.Weight = 0
				group = append(group, vnet.Member{ID: n.named.add(vnet.Object{Hop: h}), Weight: weight})
			}
			r.Object = group[0].ID
			if len(group) > 1 || g.rng.IntN(4) == 0 {
				r.Object = n.named.add(vnet.Object{Members: group})
			}
			r.Hops = nil
		}
	}
}

// objectEvent changes what an object says, and so all routes that name it; or deletes it, or puts it back.
func (g *graph) objectEvent(n *node) []event {
	if len(n.named.all) == 0 {
		return nil
	}
	o := n.named.all[g.rng.IntN(len(n.named.all))]
	switch g.rng.IntN(4) {
	case 0:
		if g.ecmp == single {
			return []event{{node: n.name, change: vnet.DeleteObject{Object: o}}}
		}
	case 1:
		return []event{{node: n.name, change: vnet.ReplaceObject{Object: o}}}
	}
	switch {
	case len(o.Members) > 0:
		o.Members = slices.Clone(o.Members)
		for i := range o.Members {
			o.Members[i].Weight = 1 + g.rng.IntN(20)
		}
		if i := g.rng.IntN(len(o.Members)); g.ecmp == parallel && len(o.Members) > 1 {
			o.Members = slices.Delete(o.Members, i, i+1)
		}
	case g.ecmp == single:
		e := g.anyEnd(n)
		other := e.link.ends[g.rng.IntN(len(e.link.ends))]
		family := 4
		if o.Via.Is6() {
			family = 6
		}
		if other == e || !e.link.prefix(family).IsValid() {
			return nil
		}
		o.Hop = vnet.Hop{Via: other.address(family), Interface: e.name}
	}
	return []event{{node: n.name, change: vnet.ReplaceObject{Object: o}}}
}

// withoutObjects leaves out the objects by interfaces that are gone, groups with such members, and routes that name
// them.
func withoutObjects(n *vnet.NodePlan, gone func(name string) bool) {
	left := map[uint32]bool{}
	lost := func(o vnet.Object) bool {
		if len(o.Members) == 0 {
			return gone(o.Interface)
		}
		return slices.ContainsFunc(o.Members, func(m vnet.Member) bool { return left[m.ID] })
	}
	n.Objects = slices.DeleteFunc(slices.Clone(n.Objects), func(o vnet.Object) bool {
		left[o.ID] = lost(o)
		return left[o.ID]
	})
	n.Routes = slices.DeleteFunc(slices.Clone(n.Routes), func(r vnet.Route) bool { return left[r.Object] })
}
