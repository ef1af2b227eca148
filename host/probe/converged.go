package probe

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Verdict says how far a network has converged.
type Verdict struct {
	Converged bool `json:"converged"`
	Routers   int  `json:"routers"` // that take part in routing, and run
	Pairs     int  `json:"pairs"`   // of a router and a prefix that it must reach
	Reached   int  `json:"reached"` // of Pairs
	// Missing words the first pairs that are not reached, for a person.
	Missing []string `json:"missing,omitempty"`
}

// maxMissing bounds Verdict.Missing.
const maxMissing = 10

// Converged judges one look at a network; docs/convergence.md says what is asked. tables holds the nodes that run.
// Routers that are Elsewhere are not judged: what is sent to one of them is taken to arrive, as its own host judges
// the rest of the way. up tells which links are not taken down (nil: all). Two equal looks make the verdict final:
// see AwaitConverged.
func Converged(s *slice.Slice, tables map[string]Table, up func(link string) bool) Verdict {
	if up == nil {
		up = func(string) bool { return true }
	}
	w := newNetwork(s, tables, up)
	f := &follower{network: w, fibs: make([]fib, len(w.nodes)), state: make([]state, len(w.nodes))}
	for i := range w.nodes {
		f.fibs[i] = newFIB(w.nodes[i].table.Routes)
	}
	v := Verdict{}
	taking := map[int]bool{}
	for _, d := range w.domains() {
		for _, r := range d.routers {
			if !w.nodes[r].table.Elsewhere {
				taking[r] = true
			}
		}
		for i := range d.wants {
			f.judge(d.routers, &d.wants[i], &v)
		}
	}
	v.Routers = len(taking)
	w.static(f, &v)
	v.Converged = v.Reached == v.Pairs
	return v
}

// static adds the static routes of routers with a daemon: they must be in the kernel.
func (w *network) static(f *follower, v *Verdict) {
	for i, m := range w.nodes {
		if m.table.Elsewhere || m.node.Routing == nil || len(m.node.Routing.Config) > 0 {
			continue
		}
		for _, r := range m.node.Routing.Static {
			if !w.usable(i, r) {
				continue
			}
			_, ok := f.fibs[i].routes[r.To.Masked()]
			v.count(ok, func() string {
				return fmt.Sprintf("%s has not installed its static route to %s", m.node.Name, r.To)
			})
		}
	}
}

// usable reports whether a static route can be in the kernel: its next hop is on a link that is up.
func (w *network) usable(node int, r slice.Route) bool {
	if r.Blackhole {
		return true
	}
	if r.Interface != "" {
		_, up := w.segment[attachment{node, r.Interface}]
		return up
	}
	for _, i := range w.nodes[node].node.Interfaces {
		_, up := w.segment[attachment{node, i.Name}]
		if up &&
			slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool {
				return p.Masked().Contains(r.Via)
			}) {
			return true
		}
	}
	return false
}

// count notes one pair.
func (v *Verdict) count(ok bool, missing func() string) {
	v.Pairs++
	if ok {
		v.Reached++
	} else if len(v.Missing) < maxMissing {
		v.Missing = append(v.Missing, missing())
	}
}
