package fib

import (
	"net/netip"
	"slices"
	"testing"
)

// leafOf is the next hop that programs find for an address that has one alone.
func (p *plain) leafOf(r *Router, a netip.Addr) nexthop {
	return p.hops[r.trie(a).lookup(keyOf(a)).index()]
}

// The FTN is an attribute of one prefix's route, as long as that is there: it comes and goes with it, whichever of the
// two was set first, and neighbours are followed as without it.
func TestFTNFollowsTheRoute(t *testing.T) {
	p := newPlain()
	r := mustRouter(t, p.open(t))
	prefix, to := netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("198.51.100.20")
	gateway := netip.MustParseAddr("192.0.2.1")
	route := Route{Kind: Unicast, Paths: []Path{{Port: 3, Gateway: gateway}}}
	is := func(what string, ftn uint32, want uint64) {
		t.Helper()
		if have := p.leafOf(r, to); have.ftn != ftn || have.to != want {
			t.Errorf("%s: FTN %d, adjacency %x; want %d, %x", what, have.ftn, have.to, ftn, want)
		}
		for _, other := range []string{"192.0.2.77", "198.51.100.130"} { // a shorter prefix, and a longer one
			if have := p.leafOf(r, netip.MustParseAddr(other)); have.ftn != 0 {
				t.Errorf("%s: %s has FTN %d", what, other, have.ftn)
			}
		}
	}
	unresolved := adjacency(nexthopUnresolved, [6]byte{})
	must(t, r.SetLeg(3, Leg{MTU: 1500, Up: true, IPv4: true}))
	must(t, r.SetRoute(netip.MustParsePrefix("0.0.0.0/0"), route))
	must(t, r.SetRoute(netip.MustParsePrefix("198.51.100.128/25"), route))
	unrouted := func(when string, want ...netip.Prefix) {
		t.Helper()
		other := netip.MustParsePrefix("0.0.0.0/0") // it has no FTN
		if have := r.Unrouted([]netip.Prefix{prefix, other}); !slices.Equal(have, want) {
			t.Errorf("%s: unrouted are %v, want %v", when, have, want)
		}
	}
	must(t, r.SetFTN(prefix, 7))
	is("before the route", 0, unresolved)
	unrouted("before the route", prefix)
	must(t, r.SetRoute(prefix, Route{Kind: Local}))
	unrouted("with a route that leads nowhere else", prefix)
	must(t, r.SetRoute(prefix, route))
	is("with the route", 7, unresolved)
	unrouted("with the route")
	n := Neighbour{MAC: [6]byte{2, 0, 0, 0, 0, 1}}
	must(t, r.SetNeighbour(3, gateway, n))
	is("with a neighbour", 7, n.adjacency())
	must(t, r.SetFTN(prefix, 8))
	is("with another FTN", 8, n.adjacency())
	if have := r.Lookup(to); !have.Same(route) {
		t.Errorf("the route is %v", have)
	}
	for at, have := range r.Routes() {
		if !have.Same(route) {
			t.Errorf("the route to %v is %v", at, have)
		}
	}
	for at, have := range r.Scan() {
		if !have.Same(route) {
			t.Errorf("the route to %v is scanned as %v", at, have)
		}
	}
	must(t, r.DeleteRoute(prefix))
	is("without the route", 0, n.adjacency())
	must(t, r.SetRoute(prefix, route))
	is("with the route again", 8, n.adjacency())
	must(t, r.DeleteNeighbour(3, gateway))
	is("without a neighbour", 8, unresolved)
	must(t, r.SetFTN(prefix, 0))
	is("without an FTN", 0, unresolved)
	if len(r.hops) != 1 {
		t.Errorf("next hops are left: %v", r.hops)
	}
}

// Each of several paths has it. A next hop that is used again has none of its former use.
func TestFTNOfSeveralPaths(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	r := mustRouter(t, f)
	prefix := netip.MustParsePrefix("2001:db8::/32")
	route := Route{Kind: Unicast, Paths: []Path{{Port: 3}, {Port: 4}}}
	must(t, r.SetFTN(prefix, 9))
	must(t, r.SetRoute(prefix, route))
	e := r.trie(prefix.Addr()).lookup(keyOf(prefix.Addr()))
	for i := range r.fib.node(e.index()) {
		if h := p.hops[load(&r.fib.node(e.index())[i]).index()]; h.ftn != 9 {
			t.Fatalf("path %d: %+v", i, h)
		}
	}
	if have := r.Lookup(prefix.Addr()); !have.Same(route) {
		t.Errorf("the route is %v", have)
	}
	must(t, r.SetRoute(prefix, Route{Kind: Reject})) // labels do not lead where routes do not
	if have := p.leafOf(r, prefix.Addr()); have.ftn != 0 {
		t.Errorf("%+v", have)
	}
	must(t, r.Close())
	r = mustRouter(t, f)
	for i := range 100 {
		must(t, r.SetRoute(netip.PrefixFrom(address(i), 32), Route{Kind: Unicast,
			Paths: []Path{{Port: 5, Gateway: address(i)}}}))
	}
	for i, h := range p.hops {
		if h.ftn != 0 && r.byIndex[uint32(i)] != nil {
			t.Errorf("next hop %d has FTN %d", i, h.ftn)
		}
	}
}

func TestLabelSpaceEndsWithTheRouter(t *testing.T) {
	p := newPlain()
	r := mustRouter(t, p.open(t))
	must(t, r.SetLabelSpace(5, false))
	if have := p.routers[r.id].space; have != 5 {
		t.Errorf("label space %d", have)
	}
	must(t, r.Close())
	if have := p.routers[r.id].space; have != 0 {
		t.Errorf("label space %d of a router that is gone", have)
	}
	if r.SetLabelSpace(5, false) == nil || r.SetFTN(netip.MustParsePrefix("::/0"), 1) == nil {
		t.Error("a router that is closed was changed")
	}
}

// A router has a million routes, and no labels.
func TestRoutesWithoutAnFTNAreNotCopied(t *testing.T) {
	r := Route{Kind: Unicast, Paths: []Path{{Port: 3, Weight: 1}, {Port: 4, Weight: 1}}}
	if n := testing.AllocsPerRun(10, func() { r = r.withFTN(0) }); n > 0 {
		t.Errorf("%v allocations for each route", n)
	}
	if other := r.withFTN(7); other.Paths[0].ftn != 7 || r.Paths[0].ftn != 0 {
		t.Errorf("%+v, of %+v", other, r)
	}
}
