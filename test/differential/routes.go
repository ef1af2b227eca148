package differential

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/vnet"
)

// route gives all nodes routes to all subnets and loopbacks along shortest paths; costs differ by direction, so many
// paths back are not the paths there. Hosts have default routes.
func (g *graph) route() {
	for _, family := range []int{4, 6} {
		for _, l := range g.links {
			if s := l.prefix(family); s.IsValid() {
				var at []*node
				for _, e := range l.ends {
					at = append(at, e.node)
				}
				g.routeTo(family, s, at)
			}
		}
		for _, n := range g.nodes {
			if n.router {
				g.routeTo(family, n.loopback(family), []*node{n})
			}
		}
		for _, n := range g.nodes {
			if !n.router {
				g.defaultRoute(family, n)
			}
		}
	}
}

var defaults = map[int]netip.Prefix{4: netip.MustParsePrefix("0.0.0.0/0"), 6: netip.MustParsePrefix("::/0")}

func (g *graph) defaultRoute(family int, host *node) {
	e := host.ends[0]
	if !e.link.prefix(family).IsValid() {
		return
	}
	for _, other := range e.link.ends {
		if other.node.router {
			host.routes = append(host.routes,
				vnet.Route{To: defaults[family],
					Hops: []vnet.Hop{{Via: other.address(family), Interface: e.name}}})
			return
		}
	}
}

// routeTo writes the routes of all routers to a prefix that is at some nodes.
func (g *graph) routeTo(family int, to netip.Prefix, at []*node) {
	distance := g.distances(family, at)
	for _, n := range g.nodes {
		d, reachable := distance[n]
		if !n.router || !reachable || d == 0 {
			continue
		}
		hops := g.hops(family, n, d, distance)
		r := vnet.Route{To: to, Hops: hops}
		if g.ecmp == parallel {
			r.Source = n.loopback(family).Addr() // the answer's source must not depend on the link
		}
		n.routes = append(n.routes, r)
	}
}

// distances from all routers, by Bellman and Ford: networks are small.
func (g *graph) distances(family int, at []*node) map[*node]int {
	distance := map[*node]int{}
	for _, n := range at {
		if n.router {
			distance[n] = 0
		}
	}
	for changed := true; changed; {
		changed = false
		for _, n := range g.nodes {
			for _, e := range n.ends {
				for _, other := range e.link.ends {
					d, ok := distance[other.node]
					have, known := distance[n]
					if n.router && other.node.router && ok && e.link.prefix(family).IsValid() &&
						(!known || d+e.cost < have) {
						distance[n], changed = d+e.cost, true
					}
				}
			}
		}
	}
	return distance
}

// hops are the next hops on shortest paths, as many as the network's kind allows.
func (g *graph) hops(family int, n *node, d int, distance map[*node]int) []vnet.Hop {
	var hops []vnet.Hop
	var to []*node
	for _, e := range n.ends {
		for _, other := range e.link.ends {
			there, ok := distance[other.node]
			if other == e || !ok || there+e.cost != d || !e.link.prefix(family).IsValid() {
				continue
			}
			if len(hops) > 0 && (g.ecmp == single || g.ecmp == parallel && to[0] != other.node) {
				continue
			}
			weight := 1
			if g.ecmp != single {
				weight += g.rng.IntN(3)
			}
			hops, to = append(hops, vnet.Hop{Via: g.gateway(family, other), Interface: e.name,
				Weight: weight}), append(to, other.node)
		}
	}
	return hops
}

// disturb makes routing tables as people and daemons make them: holes, dead ends, loops, overlaps. Not where the
// choice among several next hops would show then.
func (g *graph) disturb() {
	if g.ecmp != single {
		return
	}
	for range g.rng.IntN(2 * len(g.nodes)) {
		n := g.nodes[g.rng.IntN(len(g.nodes))]
		if !n.router || len(n.routes) == 0 {
			continue
		}
		i := g.rng.IntN(len(n.routes))
		switch g.rng.IntN(5) {
		case 0:
			n.routes = slices.Delete(n.routes, i, i+1)
		case 1:
			n.routes[i] = vnet.Route{To: n.routes[i].To, Kind: g.deadEnd()}
		default:
			g.addRoute(n, g.randomRoute(n))
		}
	}
}

// deadEnd is a kind of route that has no next hop.
func (g *graph) deadEnd() uint8 {
	return []uint8{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW}[g.rng.IntN(4)]
}

// addRoute adds or replaces; the kernel's own routes to the links' subnets are left alone.
func (g *graph) addRoute(n *node, r vnet.Route) {
	for _, e := range n.ends {
		if r.To == e.link.v4 {
			return
		}
	}
	for i := range n.routes {
		if n.routes[i].To == r.To && n.routes[i].Metric == r.Metric {
			n.routes[i] = r
			return
		}
	}
	n.routes = append(n.routes, r)
}

// randomRoute is to a random prefix that covers, or is covered by, what the network has, by a random next hop.
func (g *graph) randomRoute(n *node) vnet.Route {
	family := 4 + 2*g.rng.IntN(2)
	r := vnet.Route{To: g.randomPrefix(family)}
	if g.rng.IntN(6) == 0 {
		r.Metric = 1 + g.rng.IntN(3)*1000
	}
	if g.rng.IntN(6) == 0 {
		r.Kind = g.deadEnd()
		return r
	}
	e := n.ends[g.rng.IntN(len(n.ends))]
	if !e.link.prefix(family).IsValid() {
		r.Kind = unix.RTN_UNREACHABLE
		return r
	}
	other := e.link.ends[g.rng.IntN(len(e.link.ends))]
	switch {
	case other == e && r.To.Bits() > 0: // on the link
		r.Hops = []vnet.Hop{{Interface: e.name}}
	case other == e:
		r.Kind = unix.RTN_UNREACHABLE
	default:
		r.Hops = []vnet.Hop{{Via: g.gateway(family, other), Interface: e.name}}
	}
	return r
}

// gateway is how a route names a router: in some networks, some of IPv4 by an IPv6 address.
func (g *graph) gateway(family int, e *end) netip.Addr {
	if family == 4 && g.odd.via6 && e.link.v6.IsValid() && g.rng.IntN(3) > 0 {
		return e.address(6)
	}
	return e.address(family)
}

func (g *graph) randomPrefix(family int) netip.Prefix {
	l := g.links[g.rng.IntN(len(g.links))]
	p := l.prefix(family)
	if !p.IsValid() || g.rng.IntN(8) == 0 {
		return defaults[family]
	}
	a := nth(p, g.rng.IntN(4))
	bits := []int{8, 12, 15, 16, 17, 20, 23, 24, 25, 27, 30, 31, 32}[g.rng.IntN(13)]
	if family == 6 {
		bits = []int{16, 32, 40, 47, 48, 49, 56, 60, 63, 64, 65, 96, 126, 127, 128}[g.rng.IntN(15)]
	}
	return netip.PrefixFrom(a, bits).Masked()
}
