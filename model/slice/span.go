package slice

import (
	"maps"
	"slices"
)

// Segment is one Ethernet segment: links, and the switches that join them.
type Segment struct {
	Links    []*Link
	Switches []*Node
}

// Segments lists a slice's segments.
func (s *Slice) Segments() []*Segment {
	switches := map[string]*Node{}
	for i := range s.Nodes {
		if s.Nodes[i].Kind == Switch {
			switches[s.Nodes[i].Name] = &s.Nodes[i]
		}
	}
	of := map[*Node]*Segment{}
	all := make([]*Segment, 0, len(s.Links))
	for i := range s.Links {
		seg := &Segment{Links: []*Link{&s.Links[i]}}
		all = append(all, seg)
		for _, e := range s.Links[i].Ends {
			sw := switches[e.Node]
			switch other := of[sw]; {
			case sw == nil || other == seg:
			case other == nil:
				of[sw] = seg
				seg.Switches = append(seg.Switches, sw)
			default:
				other.take(seg, of)
				seg = other
			}
		}
	}
	return slices.DeleteFunc(all, func(seg *Segment) bool { return len(seg.Links) == 0 })
}

// take moves everything from another segment to this one.
func (seg *Segment) take(from *Segment, of map[*Node]*Segment) {
	seg.Links = append(seg.Links, from.Links...)
	seg.Switches = append(seg.Switches, from.Switches...)
	for _, sw := range from.Switches {
		of[sw] = seg
	}
	from.Links, from.Switches = nil, nil
}

// Span says on which host each part of a placed slice is. A bridge (a LAN, a switch) is on every host that has an end
// of it. A cable is on one host, except a link between two nodes, which can be on two.
//
//   - An end at a node is on the node's host.
//   - A switch's end of a cable to a node is on the node's host: so a switch is on every host that has a node of it.
//   - A switch's end of a cable to another switch, or at a LAN, is on the first, by name, of the hosts that have nodes
//     of either. Both bridges are on that host.
type Span struct {
	ends     map[endName]string
	links    map[string][]string
	switches map[string][]string
}

// endName is an End without its shape.
type endName struct{ node, iface string }

// Host is the host of an end; its Shape is ignored.
func (s *Span) Host(e End) string { return s.ends[endName{e.Node, e.Interface}] }

// Link lists the hosts that have an end of a link, sorted; in a slice that is not placed, the host is "".
func (s *Span) Link(name string) []string { return s.links[name] }

// Switch lists the hosts that have a switch's bridge, sorted; none for a switch without links.
func (s *Span) Switch(name string) []string { return s.switches[name] }

// Span computes the span of a placed slice.
func (s *Slice) Span() *Span {
	span := &Span{ends: map[endName]string{}, links: map[string][]string{}, switches: map[string][]string{}}
	host := map[string]string{} // of nodes that are no switch
	for i := range s.Nodes {
		if s.Nodes[i].Kind != Switch {
			host[s.Nodes[i].Name] = s.Nodes[i].Host
		}
	}
	for _, seg := range s.Segments() {
		span.addSegment(seg, host)
	}
	return span
}

// addSegment computes the hosts of one segment.
func (s *Span) addSegment(seg *Segment, host map[string]string) {
	// the hosts of nodes that are at each
	whole, atLink, atSwitch := set{}, make([]set, len(seg.Links)), map[string]set{}
	for i, l := range seg.Links {
		atLink[i] = set{}
		for _, e := range l.Ends {
			if at, isNode := host[e.Node]; isNode {
				atLink[i][at], whole[at] = true, true
			}
		}
		for _, e := range l.Ends {
			if _, isNode := host[e.Node]; !isNode {
				atSwitch[e.Node] = union(atSwitch[e.Node], atLink[i])
			}
		}
	}
	plugged := map[string]set{}
	for i, l := range seg.Links {
		on := set{}
		for _, e := range l.Ends {
			at, isNode := host[e.Node]
			if !isNode {
				at = switchHost(l, e.Node, atLink[i], atSwitch, whole)
				plugged[e.Node] = union(plugged[e.Node], set{at: true})
			}
			s.ends[endName{e.Node, e.Interface}] = at
			on[at] = true
		}
		s.links[l.Name] = on.sorted()
	}
	for sw, on := range plugged {
		s.switches[sw] = on.sorted()
	}
}

// switchHost is the host of a switch's end of a link: that of the node at the other end; for a LAN or another switch,
// the first host of either.
func switchHost(l *Link, sw string, atLink set, atSwitch map[string]set, whole set) string {
	if !l.LAN && len(atLink) > 0 {
		return atLink.first()
	}
	either := atLink
	for _, e := range l.Ends {
		if !l.LAN || e.Node == sw {
			either = union(either, atSwitch[e.Node])
		}
	}
	if len(either) == 0 {
		either = whole // neither has a node: any host is right, if both ends get the same one
	}
	return either.first()
}

type set map[string]bool

func union(a, b set) set {
	all := maps.Clone(a)
	if all == nil {
		all = set{}
	}
	maps.Copy(all, b)
	return all
}

func (s set) sorted() []string { return slices.Sorted(maps.Keys(s)) }

// first is the first name, empty where there is none.
func (s set) first() string {
	if names := s.sorted(); len(names) > 0 {
		return names[0]
	}
	return ""
}
