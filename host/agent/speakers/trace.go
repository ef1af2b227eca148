package speakers

import (
	"net/netip"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// trace follows the labels that lead an LSP from its ingress, as earlier speakers have installed them, through the
// routers of this host: the route by which it is asked for again, so that it stays where it is. nil: they do not lead
// to its egress, or leave the host.
func (s *Speakers) trace(at *Router, l *slice.LSP) (route []message.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := labels.Key{Space: at.Space, Number: ftnOf(l.ID), FTN: true}
	for range len(at.Network.Nodes) {
		o, there := s.entries[k]
		if !there {
			return nil
		}
		if o.entry.Pop {
			if at.Name == l.Egress() {
				return route
			}
			return nil
		}
		next, router := s.across(at, o.entry)
		if router == nil || len(o.entry.Push) != 1 {
			return nil
		}
		route = append(route, message.Step{Prefix: netip.PrefixFrom(next, next.BitLen())})
		at, k = router, labels.Key{Space: router.Space, Number: o.entry.Push[0].Label}
	}
	return nil // they go round in a circle
}

// across gives the router, and its address, that an entry of another one sends to; nil: none of this host.
func (s *Speakers) across(from *Router, e datapath.NHLFE) (netip.Addr, *Router) {
	for a, mac := range from.Interfaces[from.indexOf(e.Port)].Neighbours {
		if mac != e.MAC {
			continue
		}
		for i := range from.Network.Nodes {
			r := s.wanted[sliver.ID{Slice: from.Network.ID, Node: from.Network.Nodes[i].Name}]
			if r == nil {
				continue
			}
			for _, is := range r.Interfaces {
				if is.Prefix.Addr() == a {
					return a, r
				}
			}
		}
	}
	return netip.Addr{}, nil
}
