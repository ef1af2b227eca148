package controller

import (
	"cmp"
	"slices"

	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

const (
	leastMTU     = 68   // RFC 791
	leastMTUIPv6 = 1280 // RFC 8200, section 5
)

// joints are a slice's segments as package mapping sees them: which nodes, how much the fastest of them may send, how
// much each has reserved, and how large their packets are, encapsulated in IPv6 or IPv4.
func joints(s *slice.Slice, ipv6 bool) (links []mapping.Link) {
	nodes := make(map[string]*slice.Node, len(s.Nodes))
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, seg := range s.Segments() {
		joint := mapping.Link{Reserved: map[string]uint64{}}
		var kind slice.TunnelKind
		for _, l := range seg.Links {
			joinEnds(&joint, l, nodes)
			if l.Tunnel.Kind == slice.VXLAN {
				kind = slice.VXLAN
			}
		}
		slices.Sort(joint.Nodes)
		joint.Nodes = slices.Compact(joint.Nodes)
		if joint.MTU += kind.Overhead(ipv6); len(joint.Nodes) > 1 {
			links = append(links, joint)
		}
	}
	return links
}

// joinEnds adds one link of a segment. Rates of cables between switches do not count: each is on one host.
func joinEnds(joint *mapping.Link, l *slice.Link, nodes map[string]*slice.Node) {
	rate, before := unit.Rate(0), len(joint.Nodes)
	for _, e := range l.Ends {
		n, sends := nodes[e.Node], e.Shape.Rate
		if i := n.Interface(e.Interface); i != nil {
			joint.MTU = max(joint.MTU, smallestMTU(i))
			sends = cmp.Or(i.Reserved(), sends)
			if n.Kind != slice.Switch && i.Reserved() != 0 {
				joint.Reserved[n.Name] += uint64(i.Reserved())
			}
		}
		rate = max(rate, sends)
		if n.Kind != slice.Switch {
			joint.Nodes = append(joint.Nodes, n.Name)
		}
	}
	if len(joint.Nodes) > before {
		joint.Rate = max(joint.Rate, uint64(rate))
	}
}

// smallestMTU is the least that an interface can do with.
func smallestMTU(i *slice.Interface) int {
	if i.FixedMTU {
		return i.MTU
	}
	for _, a := range i.Addresses {
		if a.Addr().Is6() {
			return leastMTUIPv6
		}
	}
	return leastMTU
}
