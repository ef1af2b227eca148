package resolve

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
)

// segment is one Ethernet segment, that is one network of IP: the interfaces that links and switches join.
type segment struct {
	key     string
	links   []*link
	members []*port // interfaces of nodes that are no switches, by the name of their node
	routers []*port // those members that route
	cable   bool    // two members and one link, nothing between
	subnet  [address.Families]netip.Prefix
	auto    [address.Families]bool // members without an address of the family get one
}

// disjoint is a union-find forest.
type disjoint []int

func newDisjoint(n int) disjoint {
	d := make(disjoint, n)
	for i := range d {
		d[i] = i
	}
	return d
}

func (d disjoint) find(i int) int {
	for d[i] != i {
		d[i] = d[d[i]]
		i = d[i]
	}
	return i
}

// join reports false where i and j were joined already.
func (d disjoint) join(i, j int) bool {
	i, j = d.find(i), d.find(j)
	d[i] = j
	return i != j
}

// makeSegments finds the segments. A loop of switches is an error: nothing would stop a frame that circles in it.
func (r *resolver) makeSegments() {
	bridges := map[*node]int{}
	for _, n := range r.nodes {
		if n.kind == slice.Switch {
			bridges[n] = len(r.links) + len(bridges)
		}
	}
	joined := newDisjoint(len(r.links) + len(bridges)) // links, then switches
	for i, l := range r.links {
		for _, p := range l.ends {
			if bridge, ok := bridges[p.node]; ok && !joined.join(i, bridge) {
				r.Add(p.at, "take one of its links away",
					"switch %q closes a loop of switches, in which frames would circle forever",
					p.node.name)
			}
		}
	}
	byRoot := map[int]*segment{}
	for i, l := range r.links {
		root := joined.find(i)
		s := byRoot[root]
		if s == nil {
			s = &segment{}
			byRoot[root] = s
			r.segments = append(r.segments, s)
		}
		s.links = append(s.links, l)
		for _, p := range l.ends {
			p.segment = s
			if p.node.kind != slice.Switch {
				s.members = append(s.members, p)
			} else if name := "switch " + p.node.name; s.key == "" || name < s.key {
				s.key = name
			}
		}
	}
	for _, s := range r.segments {
		s.finish()
	}
	slices.SortFunc(r.segments, func(a, b *segment) int { return cmp.Compare(a.key, b.key) })
}

// finish derives key, members and kind from the links.
func (s *segment) finish() {
	if s.key == "" {
		s.key = s.links[0].key
	}
	s.cable = len(s.links) == 1 && len(s.members) == 2 && !s.links[0].lan()
	slices.SortStableFunc(s.members, func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.node.name, b.node.name), cmp.Compare(a.name, b.name))
	})
	for _, p := range s.members {
		if p.node.kind == slice.Router {
			s.routers = append(s.routers, p)
		}
	}
}

// network is the length of the network that the segment needs if nothing is written.
func (s *segment) network(family int) int {
	switch {
	case family == address.V4 && s.cable:
		return 31
	case family == address.V6 && s.cable:
		return 127
	case family == address.V6:
		return 64
	case len(s.members) <= 200:
		return 24
	case len(s.members) <= 4000:
		return 20
	}
	return 16
}
