package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// fib answers which route a kernel takes.
type fib struct {
	routes map[netip.Prefix]*Route
	bits   [2][]int // prefix lengths that occur, longest first; IPv4 and IPv6
}

func newFIB(routes []Route) fib {
	f := fib{routes: make(map[netip.Prefix]*Route, len(routes))}
	var seen [2][129]bool
	for i := range routes {
		r := &routes[i]
		if have, ok := f.routes[r.To]; ok && have.Metric <= r.Metric {
			continue
		}
		f.routes[r.To] = r
		seen[familyOf(r.To.Addr())][r.To.Bits()] = true
	}
	for family := range seen {
		for bits := 128; bits >= 0; bits-- {
			if seen[family][bits] {
				f.bits[family] = append(f.bits[family], bits)
			}
		}
	}
	return f
}

func familyOf(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// lookup gives the longest match that covers the whole prefix, or nil.
func (f *fib) lookup(p netip.Prefix) *Route {
	if r, ok := f.routes[p]; ok {
		return r
	}
	for _, bits := range f.bits[familyOf(p.Addr())] {
		if bits >= p.Bits() {
			continue
		}
		shorter, err := p.Addr().Prefix(bits)
		if err != nil {
			continue
		}
		if r, ok := f.routes[shorter]; ok {
			return r
		}
	}
	return nil
}

// state is what is known of a router while one destination is judged.
type state uint8

const (
	unknown  state = iota
	visiting       // on the path that is being followed: to meet it again is a loop
	arrives
	lost
)

// follower walks the kernels' next hops towards one destination after the other. Every router is visited once per
// destination: what is known of a router is known of all whose packets pass it.
type follower struct {
	*network
	fibs  []fib
	state []state
	why   map[int]string // for lost routers, while somebody wants to read it
	words bool           // somebody does
	path  []int          // routers on the path that is being followed
}

// judge counts the pairs of one destination.
func (f *follower) judge(routers []int, want *wanted, v *Verdict) {
	clear(f.state)
	f.words = len(v.Missing) < maxMissing
	if f.words {
		f.why = map[int]string{}
	}
	for i := range f.nodes {
		if f.nodes[i].table.Elsewhere {
			f.state[i] = arrives
		}
	}
	for _, home := range want.homes {
		f.state[home] = arrives
	}
	for _, r := range routers {
		if f.nodes[r].table.Elsewhere || slices.Contains(want.homes, r) {
			continue
		}
		ok := f.follow(r, want) == arrives
		v.count(ok, func() string {
			return fmt.Sprintf("%s does not reach %s (%s): %s", f.name(r), want.prefix, want.what, f.why[r])
		})
	}
}

// follow tells whether packets from r arrive. With several next hops, all of them must lead there.
func (f *follower) follow(r int, want *wanted) state {
	if f.state[r] != unknown {
		return f.state[r]
	}
	route := f.fibs[r].lookup(want.prefix)
	if route == nil {
		return f.lose(r, func() string { return f.name(r) + " has no route to it" })
	}
	if route.Type != Unicast || len(route.Hops) == 0 {
		return f.lose(r, func() string {
			return fmt.Sprintf("%s drops it (%s %s)", f.name(r), route.Type, route.To)
		})
	}
	f.state[r] = visiting
	f.path = append(f.path, r)
	result := f.followAll(r, route, want)
	f.path = f.path[:len(f.path)-1]
	return result
}

// followAll follows every next hop of a route.
func (f *follower) followAll(r int, route *Route, want *wanted) state {
	for _, hop := range route.Hops {
		next, ok := f.next(r, hop, want)
		if !ok {
			return f.lose(r, func() string {
				return fmt.Sprintf("%s sends it %s, where nobody takes it", f.name(r), hop)
			})
		}
		if f.state[next] == visiting {
			return f.lose(r, func() string { return "it loops: " + f.loop(next) })
		}
		if f.follow(next, want) != arrives {
			return f.lose(r, func() string { return f.why[next] })
		}
	}
	f.state[r] = arrives
	return arrives
}

func (f *follower) lose(r int, why func() string) state {
	f.state[r] = lost
	if f.words {
		f.why[r] = why()
	}
	return lost
}

// next finds the node that receives a packet that r sends over hop.
func (f *follower) next(r int, hop Hop, want *wanted) (int, bool) {
	if !hop.Via.IsValid() {
		hop.Via = want.prefix.Addr()
	}
	next, ok := f.nodes[r].next[hop]
	return next, ok
}

// loop words the part of the path that comes back to its own beginning.
func (f *follower) loop(from int) string {
	names := []string{}
	for _, r := range f.path[slices.Index(f.path, from):] {
		names = append(names, f.name(r))
	}
	return strings.Join(append(names, f.name(from)), " -> ")
}

func (f *follower) name(node int) string { return f.nodes[node].node.Name }

// String gives the hop as iproute2 words it.
func (h Hop) String() string {
	if !h.Via.IsValid() {
		return "dev " + h.Interface
	}
	return "via " + h.Via.String() + " dev " + h.Interface
}
