package fib

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
)

// greed adds to one map, as a router with that number: the next hops' come before the nodes', which they need, too.
var greed = []struct {
	name string
	add  func(r *Router, number, i int) error
}{
	{"neighbours", func(r *Router, number, i int) error {
		return r.SetNeighbour(1+number, address(i), Neighbour{MAC: [6]byte{2}})
	}},
	{"sources", func(r *Router, number, i int) error { return r.SetAddress(address(number<<16 + i)) }},
	{"nexthops", func(r *Router, number, i int) error {
		return r.SetRoute(netip.PrefixFrom(address(i), 32),
			Route{Kind: Unicast, Paths: []Path{{Port: 1 + number, Gateway: address(i)}}})
	}},
	{"nodes", func(r *Router, _, i int) error {
		return r.SetRoute(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 25),
			Route{Kind: Local})
	}},
}

// refusal adds until there is no more room.
func refusal(t *testing.T, name string, add func(i int) error) string {
	t.Helper()
	for i := range 1 << 16 {
		err := add(i)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "map "+name) {
			t.Errorf("map %s: %v", name, err)
		}
		return err.Error()
	}
	t.Errorf("map %s has no bound", name)
	return ""
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestARouterThatFillsItsShareLeavesTheOthersTheirs(t *testing.T) {
	f := newPlain().open(t)
	f.Limit(1 << 20)
	greedy, other := mustRouter(t, f), mustRouter(t, f)
	for range 2 { // and again, after it has given everything back
		for _, m := range greed {
			why := refusal(t, m.name, func(i int) error { return m.add(greedy, 0, i) })
			if !strings.Contains(why, fmt.Sprintf("router %d uses its share", greedy.id)) {
				t.Errorf("%s: %s", m.name, why)
			}
		}
		must(t, other.SetRoute(netip.MustParsePrefix("192.0.2.0/26"),
			Route{Kind: Unicast, Paths: []Path{{Port: 9, Gateway: gateways[1]}}}))
		must(t, other.SetNeighbour(9, gateways[1], Neighbour{MAC: [6]byte{2}}))
		must(t, other.SetAddress(netip.MustParseAddr("192.0.2.1")))
		for p := range maps.Collect(greedy.Routes()) {
			must(t, greedy.DeleteRoute(p))
		}
		for at := range greedy.neighbours {
			must(t, greedy.DeleteNeighbour(at.port, at.address))
		}
		for a := range greedy.addresses {
			must(t, greedy.DeleteAddress(a))
		}
		if greedy.account.records != 2*nodePaths || greedy.account.nexthops != 0 {
			t.Errorf("nothing is left, but %+v is charged", greedy.account)
		}
	}
}

// Where many together have filled a map, a router that adds nothing goes on: its routes change, its neighbours move, it
// is taken off and back.
func TestFullMapsStopOnlyWhoAsksForMore(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	f.Limit(1 << 20)
	modest := mustRouter(t, f)
	prefix, a := netip.MustParsePrefix("192.0.2.0/26"), netip.MustParseAddr("192.0.2.1")
	by := func(gateway netip.Addr) Route {
		return Route{Kind: Unicast, Paths: []Path{{Port: 9, Gateway: gateway}}}
	}
	must(t, modest.SetLeg(9, Leg{Up: true}))
	must(t, modest.SetRoute(prefix, by(gateways[1])))
	must(t, modest.SetRoute(netip.MustParsePrefix("192.0.2.64/26"), by(gateways[2])))
	must(t, modest.SetNeighbour(9, gateways[1], Neighbour{MAC: [6]byte{2}}))
	must(t, modest.SetAddress(a))
	must(t, modest.Enable(true, true))
	var many [10]*Router
	for i := range many {
		many[i] = mustRouter(t, f)
	}
	for _, m := range greed {
		var last string
		for number, r := range many {
			last = refusal(t, m.name, func(i int) error { return m.add(r, number, i) })
		}
		if !strings.Contains(last, "are in use") {
			t.Errorf("map %s is not full: %s", m.name, last)
		}
	}
	must(t, modest.SetRoute(prefix, by(gateways[2])))
	must(t, modest.SetNeighbour(9, gateways[1], Neighbour{MAC: [6]byte{4}, Stale: true}))
	must(t, modest.SetLeg(9, Leg{MTU: 9000, Up: true}))
	must(t, modest.Enable(false, false))
	must(t, modest.Enable(true, true))
	if got := modest.Lookup(a); !got.Same(by(gateways[2])) {
		t.Errorf("the changed route leads by %+v", got)
	}
	if n, ok := modest.LookupNeighbour(9, gateways[1]); !ok || n.MAC != [6]byte{4} {
		t.Errorf("the neighbour that moved is at %v (%v)", n, ok)
	}
	must(t, modest.DeleteRoute(prefix))
	must(t, modest.DeleteNeighbour(9, gateways[1]))
	must(t, modest.DeleteAddress(a))
	must(t, modest.Close())
}
