package routing

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Defaults of link-state protocols: with no carrier to lose, a neighbour is dead after ten hellos.
const (
	defaultHello = 1  // seconds
	defaultDead  = 10 // seconds
	// On a LAN the dead interval is also the wait before a designated router is elected (RFC 2328, 9.4), and so
	// the least time until the LAN carries routes.
	defaultDeadLAN = 4
	// The same on every interface that names none, so that paths do not depend on the speed that a daemon reads of
	// a veth (FRR notices it late and would move routes 15 s after its start).
	defaultCost = 10
)

// backbone is the area of interfaces that name none.
const backbone = "0.0.0.0"

// view is a node seen within its slice.
type view struct {
	*Renderer
	node  *slice.Node
	ports []port // the node's interfaces, in order
}

// port is an interface with what its link tells about it.
type port struct {
	*slice.Interface
	others []*slice.Node // the other nodes with an interface on the same segment, switches looked through
}

// view looks up the node's segments. Cost: their size.
func (in *Renderer) view(n *slice.Node) view {
	v := view{Renderer: in, node: n}
	for i := range n.Interfaces {
		p := port{Interface: &n.Interfaces[i]}
		p.others = in.others(n, p.Link)
		v.ports = append(v.ports, p)
	}
	return v
}

// others gives the nodes that share a segment with n by this link: what is behind switches belongs to it.
func (in *Renderer) others(n *slice.Node, link string) []*slice.Node {
	seen := map[string]bool{link: true}
	found := map[string]*slice.Node{}
	for todo := []string{link}; len(todo) > 0; todo = todo[1:] {
		l := in.links[todo[0]]
		if l == nil {
			continue
		}
		for _, e := range l.Ends {
			other := in.nodes[e.Node]
			if other == nil || other == n {
				continue
			}
			if other.Kind != slice.Switch {
				found[other.Name] = other
				continue
			}
			for _, i := range other.Interfaces {
				if !seen[i.Link] {
					seen[i.Link] = true
					todo = append(todo, i.Link)
				}
			}
		}
	}
	all := make([]*slice.Node, 0, len(found))
	for _, o := range found {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *slice.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// timers gives the hello and dead interval of the segment, in seconds. Neighbours with different intervals never
// become adjacent (RFC 2328, 10.5), so the shortest that any speaker of the segment asks for holds for all of them.
// fast: every speaker asks for sub-second hellos and runs FRR, which alone has them.
func (v view) timers(p port, proto slice.Protocol) (hello, dead int, fast bool) {
	fast = v.node.Routing.Timers.FastHellos && v.node.Routing.Daemon == slice.FRR
	hello, dead = v.node.Routing.Timers.Hello, v.node.Routing.Timers.Dead
	for _, o := range p.others {
		if !o.Routing.Speaks(proto) {
			continue
		}
		t := o.Routing.Timers
		hello, dead = shorter(hello, t.Hello), shorter(dead, t.Dead)
		fast = fast && t.FastHellos && o.Routing.Daemon == slice.FRR
	}
	hello = cmp.Or(hello, defaultHello)
	if dead == 0 {
		dead = defaultDead * hello
		if !p.PointToPoint {
			dead = defaultDeadLAN * hello
		}
	}
	return hello, max(dead, 2*hello), fast
}

// shorter is the smaller of two intervals, of which 0 means none.
func shorter(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// passive reports whether the interface is announced but makes no adjacency. An interior protocol ends where
// another autonomous system begins.
func (v view) passive(p port) bool {
	if p.Passive {
		return true
	}
	if !v.node.Routing.Speaks(slice.BGP) || v.node.Routing.BGP == nil {
		return false
	}
	return slices.ContainsFunc(p.others, func(o *slice.Node) bool {
		return o.Routing.Speaks(slice.BGP) && o.Routing.BGP != nil && o.Routing.BGP.AS != v.node.Routing.BGP.AS
	})
}

// area of an interface.
func area(p port) string { return cmp.Or(p.Area, backbone) }

// loopbackArea is where the node's own addresses are announced: the backbone if the node is in it, else its
// smallest area.
func (v view) loopbackArea() string {
	areas := []string{}
	for _, p := range v.ports {
		areas = append(areas, area(p))
	}
	if len(areas) == 0 || slices.Contains(areas, backbone) {
		return backbone
	}
	slices.SortFunc(areas, compareAreas)
	return areas[0]
}

// compareAreas orders areas by number where they are dotted.
func compareAreas(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// cost of an interface.
func cost(p port) int { return cmp.Or(p.Cost, defaultCost) }

// has reports whether any of the addresses is of the family.
func has(addresses []netip.Prefix, ipv6 bool) bool {
	return slices.ContainsFunc(addresses, func(a netip.Prefix) bool { return a.Addr().Is6() == ipv6 })
}

// speaks reports whether the node has any address of the family.
func (v view) speaks(ipv6 bool) bool {
	return has(v.node.Loopbacks, ipv6) ||
		slices.ContainsFunc(v.ports, func(p port) bool { return has(p.Addresses, ipv6) })
}
