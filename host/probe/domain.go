package probe

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/model/slice"
)

// domain is a set of routers that must all reach the same prefixes.
type domain struct {
	routers []int
	wants   []wanted
}

// wanted is a prefix that someone in a domain announces.
type wanted struct {
	prefix netip.Prefix
	what   string // for a person: "loopback of denver"
	homes  []int  // the nodes that have it: no route of theirs is looked at
}

// domains gives the routing domains of the network; see docs/convergence.md.
func (w *network) domains() []domain {
	all := []domain{}
	for _, p := range []slice.Protocol{slice.OSPF, slice.ISIS, slice.RIP} {
		all = append(all, w.interior(p)...)
	}
	return append(all, w.exterior()...)
}

// adjacent reports whether the protocol makes an adjacency between two interfaces of a segment.
func (w *network) adjacent(a, b attachment, p slice.Protocol) bool {
	x, y := w.nodes[a.node].node, w.nodes[b.node].node
	if a.node == b.node || !x.Routing.Speaks(p) || !y.Routing.Speaks(p) {
		return false
	}
	i, j := x.Interface(a.port), y.Interface(b.port)
	if i == nil || j == nil || i.Passive || j.Passive || asOf(x) != asOf(y) {
		return false
	}
	return p != slice.OSPF || areaOf(i) == areaOf(j)
}

// asOf is the node's autonomous system, or 0.
func asOf(n *slice.Node) uint32 {
	if n.Routing.Speaks(slice.BGP) && n.Routing.BGP != nil {
		return n.Routing.BGP.AS
	}
	return 0
}

func areaOf(i *slice.Interface) string {
	if i.Area == "" {
		return "0.0.0.0"
	}
	return i.Area
}

// interior gives the connected components of an interior protocol, each with what its routers announce.
func (w *network) interior(p slice.Protocol) []domain {
	groups := union{}
	for _, members := range w.members {
		for i, a := range members {
			for _, b := range members[:i] {
				if w.adjacent(a, b, p) {
					groups.join(w.nodes[a.node].node.Name, w.nodes[b.node].node.Name)
				}
			}
		}
	}
	return w.collect(groups, func(n *slice.Node) bool { return n.Routing.Speaks(p) }, w.announced)
}

// announced fills in the loopbacks and segments of the domain's routers. A loopback of several routers is an anycast
// address: any of them will do.
func (w *network) announced(d *domain) {
	segments := map[netip.Prefix]int{} // prefix -> place in d.wants
	loopbacks := map[netip.Prefix]int{}
	for _, r := range d.routers {
		n := w.nodes[r].node
		for _, l := range n.Loopbacks {
			if at, known := loopbacks[l.Masked()]; known {
				d.wants[at].homes = append(d.wants[at].homes, r)
				continue
			}
			loopbacks[l.Masked()] = len(d.wants)
			d.wants = append(d.wants, wanted{l.Masked(), "loopback of " + n.Name, []int{r}})
		}
		for _, i := range n.Interfaces {
			seg, isUp := w.segment[attachment{r, i.Name}]
			if !isUp {
				continue
			}
			for _, a := range i.Addresses {
				if _, known := segments[a.Masked()]; !known {
					segments[a.Masked()] = len(d.wants)
					d.wants = append(d.wants, wanted{
						a.Masked(), "link " + i.Link, w.homesOf(seg, a.Masked()),
					})
				}
			}
		}
	}
}

// homesOf lists the nodes with an address of the prefix on the segment.
func (w *network) homesOf(segment int, p netip.Prefix) []int {
	var homes []int
	for _, a := range w.members[segment] {
		i := w.nodes[a.node].table.Interface(a.port)
		if i != nil && slices.ContainsFunc(i.Addresses, func(q netip.Prefix) bool { return q.Masked() == p }) {
			homes = append(homes, a.node)
		}
	}
	return homes
}

// exterior gives the connected components of BGP sessions. All speakers of a component must reach what any of them
// originates.
func (w *network) exterior() []domain {
	groups := union{}
	speaks := func(n *slice.Node) bool { return asOf(n) != 0 }
	for _, m := range w.nodes {
		if !speaks(m.node) {
			continue
		}
		for _, nb := range m.node.Routing.BGP.Neighbors {
			other, runs := w.index[nb.Node]
			if runs && speaks(w.nodes[other].node) &&
				(nb.AS == asOf(m.node) || w.neighbours(m.node, nb.Address)) {
				groups.join(m.node.Name, nb.Node)
			}
		}
	}
	return w.collect(groups, speaks, func(d *domain) {
		known := map[netip.Prefix]int{}
		for _, r := range d.routers {
			n := w.nodes[r].node
			for _, p := range n.Routing.BGP.Networks {
				if at, ok := known[p.Masked()]; ok {
					d.wants[at].homes = append(d.wants[at].homes, r)
					continue
				}
				known[p.Masked()] = len(d.wants)
				as := strconv.FormatUint(uint64(n.Routing.BGP.AS), 10)
				what := "network of AS " + as + " at " + n.Name
				d.wants = append(d.wants, wanted{p.Masked(), what, []int{r}})
			}
		}
	})
}

// neighbours reports whether the address is on one of the node's segments that are up. Sessions with loopbacks of
// another system are taken to be up.
func (w *network) neighbours(n *slice.Node, address netip.Addr) bool {
	for _, i := range n.Interfaces {
		for _, p := range i.Addresses {
			if p.Masked().Contains(address) {
				_, up := w.segment[attachment{w.index[n.Name], i.Name}]
				return up
			}
		}
	}
	return true
}

// collect turns a forest into domains of the nodes that belong, and lets fill say what each must reach.
func (w *network) collect(groups union, belongs func(*slice.Node) bool, fill func(*domain)) []domain {
	byRoot := map[string]int{}
	var all []domain
	for i, m := range w.nodes {
		if m.node.Kind != slice.Router || !belongs(m.node) {
			continue
		}
		root := groups.root(m.node.Name)
		at, ok := byRoot[root]
		if !ok {
			at = len(all)
			byRoot[root] = at
			all = append(all, domain{})
		}
		all[at].routers = append(all[at].routers, i)
	}
	for i := range all {
		fill(&all[i])
	}
	return all
}
