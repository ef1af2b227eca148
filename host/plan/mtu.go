package plan

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// The path MTU between two hosts may shrink while slices run. The controller fits MTUs that it chose itself anew. One
// that a user wrote stays, and longer packets are lost: so the status of the slice says it.

// PathMTUs gives, by host, how many bytes an IP packet from one host to each other one may have: no more than the
// interfaces of both carry, and than either of them measured on the path. Hosts that do not report their interface are
// left out.
func PathMTUs(self string, all []hosts.Host) map[string]int {
	carries := func(h *hosts.Host) int { // 0: not reported
		carrier, _ := h.Carrier()
		return carrier.MTU
	}
	at := slices.IndexFunc(all, func(h hosts.Host) bool { return h.Name == self })
	if at < 0 || carries(&all[at]) == 0 {
		return nil
	}
	mine, mtus := &all[at], map[string]int{}
	for i := range all {
		other := &all[i]
		mtu := min(carries(mine), carries(other))
		if i == at || mtu == 0 {
			continue
		}
		for _, measured := range []int{mine.Paths[other.Name], other.Paths[self]} {
			if measured > 0 {
				mtu = min(mtu, measured)
			}
		}
		mtus[other.Name] = mtu
	}
	return mtus
}

// Misfits says, in words, which interfaces of nodes here have an MTU, written by a user, that their tunnels do not
// carry.
func (y *Share) Misfits(s *slice.Slice) (all []string) {
	for _, seg := range s.Segments() {
		to, passes, overhead := y.narrowest(seg)
		if to == "" {
			continue
		}
		for _, l := range seg.Links {
			for _, e := range l.Ends {
				n := y.nodes[e.Node]
				if i := n.Interface(e.Interface); n.Kind != slice.Switch && y.Owns(n) && i.FixedMTU &&
					i.MTU > passes-overhead {
					all = append(all, fmt.Sprintf(
						"link %s: %s has mtu %d, which does not fit any more: "+
							"to host %s packets of %d bytes pass, "+
							"of which the tunnel takes %d: write mtu: %d, or no mtu",
						l.Name, e, i.MTU, to, passes, overhead, passes-overhead))
				}
			}
		}
	}
	return all
}

// narrowest is the host of a segment with the smallest path MTU, that MTU, and how much of it the tunnel's headers
// take, in bytes. The host is "" for a segment on one host, or where no path MTU is known.
func (y *Share) narrowest(seg *slice.Segment) (to string, passes, overhead int) {
	reached := map[string]bool{}
	include := func(t slice.Tunnel, hosts []string) {
		if t.Number == 0 {
			return
		}
		overhead = max(overhead, t.Kind.Overhead(y.Address.Is6()))
		for _, host := range hosts {
			reached[host] = true
		}
	}
	for _, l := range seg.Links {
		include(l.Tunnel, y.span.Link(l.Name))
	}
	for _, sw := range seg.Switches {
		include(sw.Tunnel, y.span.Switch(sw.Name))
	}
	for host, mtu := range y.PathMTUs {
		if reached[host] && (to == "" || mtu < passes || mtu == passes && host < to) {
			to, passes = host, mtu
		}
	}
	return to, passes, overhead
}
