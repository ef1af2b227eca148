package differential

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/vnet"
)

// event is something that happens in a network. What cannot be done (a route that is not there is deleted, say) can
// be done in neither.
type event struct {
	node    string
	change  vnet.Change // or
	carrier *carrier    // or
	command []string    // run in the node
}

// carrier is that of a node's interface, as the substrate sets it when a link fails.
type carrier struct {
	name string
	up   bool
}

func (e event) String() string {
	switch {
	case e.change != nil:
		return fmt.Sprintf("%s: %v", e.node, e.change)
	case e.carrier != nil:
		return fmt.Sprintf("%s: carrier of %s: %v", e.node, e.carrier.name, e.carrier.up)
	}
	return fmt.Sprintf("%s: %s", e.node, strings.Join(e.command, " "))
}

// anyRouter draws one.
func (g *graph) anyRouter() *node {
	for {
		if n := g.nodes[g.rng.IntN(len(g.nodes))]; n.router {
			return n
		}
	}
}

func (g *graph) anyEnd(n *node) *end { return n.ends[g.rng.IntN(len(n.ends))] }

// events draws what happens next: one thing, or several that belong together.
func (g *graph) events() []event {
	n := g.anyRouter()
	if len(n.ends) == 0 {
		return nil
	}
	if g.ecmp != single { // nothing that would make paths differ in more than their links
		switch g.rng.IntN(4) {
		case 0:
			return g.twins(n)
		case 1:
			return g.addressEvent(n)
		case 2:
			return g.objectEvent(n)
		}
		return g.neighbourEvent(n, false)
	}
	if len(n.named.all) > 0 && g.rng.IntN(6) == 0 {
		return g.objectEvent(n)
	}
	switch g.rng.IntN(14) {
	case 0, 1, 2, 3:
		return g.routeEvent(n)
	case 4, 5:
		up := g.rng.IntN(3) > 0
		return []event{{node: n.name, change: vnet.SetLink{Interface: g.anyEnd(n).name, Up: up}}}
	case 6, 7:
		return g.carrierEvent(n)
	case 8:
		return g.addressEvent(n)
	case 9:
		return g.mtuEvent(n)
	case 10:
		return g.commandEvent(n)
	case 12, 13:
		return g.oddRouteEvent(n)
	}
	return g.neighbourEvent(n, true)
}

// carrierEvent is not for what is behind a queue or a LAN: where the fast path goes on there, an end whose carrier
// was taken away still hears what others send to it; see wire.HostNetwork.SetUp.
func (g *graph) carrierEvent(n *node) []event {
	e := g.anyEnd(n)
	if !e.link.direct() {
		return nil
	}
	return []event{{node: n.name, carrier: &carrier{e.name, g.rng.IntN(2) > 0}}}
}

func (g *graph) mtuEvent(n *node) []event {
	e := g.anyEnd(n)
	if !e.link.direct() {
		return nil
	}
	return []event{{node: n.name,
		change: vnet.SetMTU{Interface: e.name, MTU: pick(g.rng, 1500, 1400, 1280, 1300, 600)}}}
}

func (g *graph) routeEvent(n *node) []event {
	if len(n.routes) == 0 {
		return nil
	}
	switch g.rng.IntN(4) {
	case 0:
		return []event{{node: n.name, change: vnet.DeleteRoute{Route: n.routes[g.rng.IntN(len(n.routes))]}}}
	case 1:
		return []event{{node: n.name, change: vnet.ReplaceRoute{Route: n.routes[g.rng.IntN(len(n.routes))]}}}
	case 2:
		return []event{{node: n.name, change: vnet.AddRoute{Route: g.randomRoute(n)}}}
	}
	return []event{{node: n.name, change: vnet.ReplaceRoute{Route: g.randomRoute(n)}}}
}

func (g *graph) addressEvent(n *node) []event {
	family := pick(g.rng, 4, 6)
	name, a := "lo", netip.PrefixFrom(nth(n.loopback(family), 1), n.loopback(family).Bits())
	if family == 4 && g.ecmp != single { // that may be another's: which of the two answers then depends on the path
		a = loopback4(1<<15 | n.number)
	}
	if g.ecmp == single && g.rng.IntN(2) == 0 {
		e := g.anyEnd(n)
		if p := e.link.prefix(family); p.IsValid() {
			name, a = e.name, netip.PrefixFrom(e.address(family), p.Bits())
		}
	}
	if g.rng.IntN(2) == 0 {
		return []event{{node: n.name, change: vnet.DeleteAddress{Interface: name, Prefix: a}}}
	}
	return []event{{node: n.name, change: vnet.AddAddress{Interface: name, Prefix: a}}}
}

// oddRouteEvent adds a route that the mirror leaves to the kernel, an address that makes one, or what has the kernel
// treat routes otherwise; or deletes what was added so.
func (g *graph) oddRouteEvent(n *node) []event {
	if len(n.ends) == 0 || len(n.routes) == 0 {
		return nil
	}
	if i := len(n.odd) - 1; i >= 0 && g.rng.IntN(3) == 0 {
		words := strings.Replace(n.odd[i], " add ", " del ", 1)
		n.odd = n.odd[:i]
		return []event{ip(n, strings.Replace(words, " replace ", " del ", 1))}
	}
	family := pick(g.rng, 4, 6)
	e := g.anyEnd(n)
	other := e.link.ends[g.rng.IntN(len(e.link.ends))]
	if other == e || !e.link.prefix(family).IsValid() {
		return nil
	}
	to, way := g.randomPrefix(family), fmt.Sprintf("via %s dev %s", other.address(family), e.name)
	if r := n.routes[g.rng.IntN(len(n.routes))]; r.To.Addr().Is4() == (family == 4) {
		to = r.To
	}
	route := func(verb, format string, args ...any) string {
		return fmt.Sprintf("-%d route %s ", family, verb) + fmt.Sprintf(format, args...)
	}
	all := []string{
		route("replace", "%s %s mtu 1300", to, way),
		route("add", "%s %s table local", to, way),
		route("add", "local %s dev lo", to),
		route("add", "multicast %s dev %s", to, e.name),
	}
	if family == 4 {
		subnet := nth(g.links[g.rng.IntN(len(g.links))].v4, 99)
		all = append(all,
			route("replace", "%s %s mtu lock %d", to, way, pick(g.rng, 0, 700)),
			route("add", "%s %s tos 0x10", to, way),
			route("replace", "%s %s realm 5", to, way),
			route("add", "%s %s table default", to, way),
			route("add", "anycast %s dev %s", to, e.name),
			route("add", "broadcast %s dev %s", to, e.name),
			fmt.Sprintf("addr add %s/24 dev lo", subnet),
			fmt.Sprintf("addr add %s peer %s/24 dev %s", nth(e.link.v4, 98), subnet, e.name))
	} else {
		from := g.links[g.rng.IntN(len(g.links))].v6
		if !from.IsValid() || g.rng.IntN(3) == 0 {
			from = netip.PrefixFrom(g.randomPrefix(family).Addr(), 32).Masked()
		}
		all = append(all, route("add", "%s from %s %s", to, from, way),
			route("add", "%s from %s %s metric 2000", to, from, way))
	}
	var events []event
	if g.rng.IntN(3) == 0 {
		events = []event{ip(n, "rule add pref 9 from 203.0.113.1 lookup 9"), ip(n, "rule del pref 9")}
	}
	words := pick(g.rng, all...)
	n.odd = append(n.odd, words)
	return append(events, ip(n, words))
}

// ip is for what has no change of its own.
func ip(n *node, words string) event {
	return event{node: n.name, command: append([]string{"ip"}, strings.Fields(words)...)}
}

// neighbourEvent deletes a neighbour, makes it stale or, if mistakes are allowed, gives it a wrong address.
func (g *graph) neighbourEvent(n *node, mistake bool) []event {
	e := g.anyEnd(n)
	other := e.link.ends[g.rng.IntN(len(e.link.ends))]
	family := pick(g.rng, 4, 6)
	if other == e || !e.link.prefix(family).IsValid() {
		return nil
	}
	b := vnet.Neighbour{Interface: e.name, Address: other.address(family), MAC: mac(e.link.number, other.place)}
	switch g.rng.IntN(5) {
	case 0:
		b.State = unix.NUD_STALE
	case 1:
		b.State = unix.NUD_REACHABLE
	case 2:
		return []event{{node: n.name, change: vnet.DeleteNeighbour{Neighbour: b}}}
	case 3:
		if mistake {
			b.MAC = mac(e.link.number, 99)
		}
	}
	return []event{{node: n.name, change: vnet.SetNeighbour{Neighbour: b}}}
}

// twins takes one of several parallel links out of service at both ends, or puts it back.
func (g *graph) twins(n *node) []event {
	if g.ecmp != parallel {
		return nil
	}
	for _, e := range n.ends {
		for _, twin := range n.ends {
			if twin != e && len(e.link.ends) == 2 && len(twin.link.ends) == 2 &&
				e.peer().node == twin.peer().node {
				up := g.rng.IntN(2) == 0
				return []event{
					{node: n.name, change: vnet.SetLink{Interface: e.name, Up: up}},
					{node: e.peer().node.name,
						change: vnet.SetLink{Interface: e.peer().name, Up: up}},
				}
			}
		}
	}
	return nil
}

// peer is the other end of a link of two.
func (e *end) peer() *end { return e.link.ends[1-e.place] }

// commandEvent makes a router one that the fast path must leave alone, or undoes it.
func (g *graph) commandEvent(n *node) []event {
	sysctl := func(path string) []string {
		return []string{"sh", "-c", fmt.Sprintf("echo %d > /proc/sys/net/%s", g.rng.IntN(2), path)}
	}
	e := g.anyEnd(n)
	var command []string
	switch g.rng.IntN(7) {
	case 0:
		command = []string{"ip", pick(g.rng, "-4", "-6"), "rule", pick(g.rng, "add", "del"), "pref", "1000",
			"iif", e.name, pick(g.rng, "blackhole", "prohibit")}
	case 1:
		command = []string{"nft",
			"add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule " +
				"inet t c meta l4proto udp drop"}
	case 2:
		command = []string{"nft", "delete table inet t"}
	case 3:
		command = sysctl("ipv4/conf/" + e.name + "/forwarding")
	case 4:
		command = sysctl("ipv4/conf/" + e.name + "/rp_filter")
	case 5:
		command = sysctl("ipv6/conf/" + e.name + "/forwarding")
	case 6:
		command = sysctl("ipv4/ip_forward")
	}
	return []event{{node: n.name, command: command}}
}
