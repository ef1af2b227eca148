package slice

import "maps"

// LinkState is what LSPs by RSVP-TE leave of links: by router and interface, the bytes a second that are unreserved in
// the direction away from the router, at each of the eight set-up priorities. Nothing is reserved of interfaces that it
// does not have.
type LinkState map[string]map[string][8]uint64

// LinkStateBeside puts together what hosts say of the links of a slice, but for one host. Each is heard on its own
// routers alone: one that a router was moved away from may still have told of it.
func (s *Slice) LinkStateBeside(host string, told map[string]LinkState) LinkState {
	all := LinkState{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Host != host {
			if is := told[n.Host][n.Name]; len(is) > 0 {
				all[n.Name] = maps.Clone(is)
			}
		}
	}
	return all
}
