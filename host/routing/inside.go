package routing

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// interior lists the interior protocols that the node runs.
func (v view) interior() []slice.Protocol {
	var all []slice.Protocol
	for _, p := range []slice.Protocol{slice.OSPF, slice.ISIS, slice.RIP} {
		if v.node.Routing.Speaks(p) {
			all = append(all, p)
		}
	}
	return all
}

// inside gives what a border router announces outside because its interior protocol knows it: the prefixes that its
// AS-mates originate. Interior BGP does not carry them to the border: a route to a loopback whose next hop is that
// loopback resolves through itself, which FRR refuses, and BIRD passes on only the best route, which is the interior
// protocol's.
func (v view) inside(ipv6 bool) []netip.Prefix {
	bgp, interior := v.node.Routing.BGP, v.interior()
	border := slices.ContainsFunc(bgp.Neighbors, func(n slice.BGPNeighbor) bool { return n.AS != bgp.AS })
	if !border || len(interior) == 0 {
		return nil
	}
	var all []netip.Prefix
	for i := range v.slice.Nodes {
		mate := &v.slice.Nodes[i]
		r := mate.Routing
		if mate == v.node || !r.Speaks(slice.BGP) || r.BGP == nil || r.BGP.AS != bgp.AS ||
			!slices.ContainsFunc(interior, r.Speaks) {
			continue
		}
		all = append(all, ofFamily(r.BGP.Networks, ipv6)...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
