package agent

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// What passes between hosts may become less while slices run. MTUs that the controller chose it fits anew; one that a user wrote stays, and what is
// longer than passes is lost: so the slice says that it is in trouble.

// waysOf is how long an IP packet may be between a host and each other one, of those that tell.
func waysOf(self string, all []store.HostState) map[string]int {
	takes := func(h *store.HostState) int { // 0: it does not tell
		carrier, _ := h.Carrier()
		return carrier.MTU
	}
	at := slices.IndexFunc(all, func(h store.HostState) bool { return h.Name == self })
	if at < 0 || takes(&all[at]) == 0 {
		return nil
	}
	mine, ways := &all[at], map[string]int{}
	for i := range all {
		other := &all[i]
		mtu := min(takes(mine), takes(other))
		if i == at || mtu == 0 {
			continue
		}
		for _, said := range []int{mine.Paths[other.Name], other.Paths[self]} {
			if said > 0 {
				mtu = min(mtu, said)
			}
		}
		ways[other.Name] = mtu
	}
	return ways
}

// misfits words which interfaces of nodes here have an MTU, by their file, that their tunnels do not carry.
func (y *layout) misfits(s *slice.Slice) (all []string) {
	for _, seg := range s.Segments() {
		to, passes, overhead := y.narrowest(seg)
		if to == "" {
			continue
		}
		for _, l := range seg.Links {
			for _, e := range l.Ends {
				n := y.nodes[e.Node]
				if i := n.Interface(e.Interface); n.Kind != slice.Switch && y.owns(n) && i.FixedMTU && i.MTU > passes-overhead {
					all = append(all, fmt.Sprintf("link %s: %s has mtu %d, which does not fit any more: to host %s packets of %d bytes pass, of which the tunnel takes %d: write mtu: %d, or no mtu",
						l.Name, e, i.MTU, to, passes, overhead, passes-overhead))
				}
			}
		}
	}
	return all
}

// narrowest is the host of a segment to which the least passes, and how long a packet may be, tunnel's headers included; of a segment that is on one
// host, or of whose hosts nothing is known, it is "".
func (y *layout) narrowest(seg *slice.Segment) (to string, passes, overhead int) {
	hosts := map[string]bool{}
	heed := func(t slice.Tunnel, at []string) {
		if t.Number == 0 {
			return
		}
		overhead = max(overhead, t.Kind.Overhead(y.address.Is6()))
		for _, host := range at {
			hosts[host] = true
		}
	}
	for _, l := range seg.Links {
		heed(l.Tunnel, y.span.Link(l.Name))
	}
	for _, sw := range seg.Switches {
		heed(sw.Tunnel, y.span.Switch(sw.Name))
	}
	for host, mtu := range y.ways {
		if hosts[host] && (to == "" || mtu < passes || mtu == passes && host < to) {
			to, passes = host, mtu
		}
	}
	return to, passes, overhead
}
