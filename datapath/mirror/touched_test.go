package mirror

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

func neighbourMessage(kind uint16, link byte, addr netip.Addr, mac byte) rtnl.Message {
	b := make([]byte, unix.SizeofNdMsg)
	b[0], b[4], b[8] = unix.AF_INET, link, unix.NUD_REACHABLE
	b = append(b, rtnl.Bytes(unix.NDA_DST, addr.AsSlice())...)
	return netlinkMessage(kind, 0, append(b, rtnl.Bytes(unix.NDA_LLADDR, []byte{2, 0, 0, 0, 0, mac})...))
}

// What an event says of a neighbour or an address, an older message of the dump does not undo.
func TestAnEventOvertakesTheDump(t *testing.T) {
	maps := newMemory()
	v := newView(maps, map[int]int{1: 101})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := netip.MustParseAddr
	moved, gone, calm := at("10.0.0.2"), at("10.0.0.3"), at("10.0.0.4")
	for range 2 { // from nothing, and from what was known
		v.begin()
		must(v.event(addressMessage(unix.RTM_DELADDR, 1, gone), partAddresses))
		must(v.confirm(addressMessage(unix.RTM_NEWADDR, 1, gone)))
		must(v.sweep(partAddresses))
		must(v.event(neighbourMessage(unix.RTM_NEWNEIGH, 1, moved, 9), partNeighbours))
		must(v.event(neighbourMessage(unix.RTM_DELNEIGH, 1, gone, 1), partNeighbours))
		for i, addr := range []netip.Addr{moved, gone, calm} {
			must(v.confirm(neighbourMessage(unix.RTM_NEWNEIGH, 1, addr, byte(i))))
		}
		must(v.sweep(partNeighbours))
		must(v.end())
		if n := maps.neighbours; len(n) != 2 || n[neighbourKey{101, moved}].MAC[5] != 9 ||
			n[neighbourKey{101, calm}].MAC[5] != 2 {
			t.Errorf("neighbours %v", n)
		}
		if len(maps.addresses) != 0 {
			t.Errorf("addresses %v", maps.addresses)
		}
		must(v.event(neighbourMessage(unix.RTM_NEWNEIGH, 1, gone, 1), parts))
	}
}

// IPv6: of a path that is removed, only that path is reported. Which of the suspect routes it belonged to is
// not known, so they stay suspect until a dump that has begun afterwards.
func TestAPathRemovedFromASuspectRoute(t *testing.T) {
	everything := netip.MustParsePrefix("::/0")
	a, b := path{link: 1, gateway: netip.MustParseAddr("fe80::a"), weight: 1}, path{link: 1,
		gateway: netip.MustParseAddr("fe80::b"), weight: 1}
	way := func(table byte, paths ...path) kroute {
		return kroute{prefix: everything, table: table, metric: 1, kind: unix.RTN_UNICAST, paths: paths}
	}
	for _, table := range []byte{unix.RT_TABLE_MAIN, unix.RT_TABLE_LOCAL} {
		maps := newMemory()
		v := newView(maps, map[int]int{1: 101})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		dump := func(events func(), routes ...kroute) {
			t.Helper()
			v.begin()
			events()
			for _, r := range routes {
				must(v.confirm(r.message(unix.RTM_NEWROUTE, 0)))
			}
			must(v.sweep(partRoutes6))
			must(v.end())
		}
		below := kroute{prefix: netip.MustParsePrefix("2001:db8::/32"), table: unix.RT_TABLE_MAIN, metric: 1,
			kind: unix.RTN_BLACKHOLE}
		check := func(when string, want fib.Kind) {
			t.Helper()
			if have := maps.routes[everything].Kind; have != want {
				t.Errorf("table %d, %s: %v, not %v", table, when, have, want)
			}
			// Table local shadows main, also while it is suspect.
			if have := maps.routes[below.prefix].Kind; table == unix.RT_TABLE_LOCAL && have != want {
				t.Errorf("below it, %s: %v, not %v", when, have, want)
			}
		}
		dump(func() {}, below, way(table, a))
		check("at first", fib.Unicast)
		dump(func() {
			must(v.event(way(table, a, b).message(unix.RTM_NEWROUTE, unix.NLM_F_APPEND),
				partRoutes6))
		}, below, way(table, a))
		check("an event adds a second path, the dump has one", fib.Other)
		dump(func() { must(v.event(way(table, a).message(unix.RTM_DELROUTE, 0), partRoutes6)) }, below,
			way(table, a, b))
		check("an event removes the first, the dump has two", fib.Other)
		dump(func() {}, below, way(table, b))
		check("after a dump that nothing disturbed", fib.Unicast)
	}
}

// IPv6: a route by a next-hop object stays beside one that has its path among others.
func TestARouteByAnObjectIsNoPathOfAnother(t *testing.T) {
	maps := newMemory()
	v := newView(maps, map[int]int{1: 101})
	a, b := path{link: 1, gateway: netip.MustParseAddr("fe80::a"), weight: 1}, path{link: 1,
		gateway: netip.MustParseAddr("fe80::b"), weight: 1}
	r := kroute{prefix: netip.MustParsePrefix("2001:db8::/32"), table: unix.RT_TABLE_MAIN, metric: 1,
		kind: unix.RTN_UNICAST, object: 1, paths: []path{a}}
	both := r
	both.object, both.paths = 0, []path{a, b}
	for _, m := range []rtnl.Message{
		objectMessage(unix.RTM_NEWNEXTHOP, 1, a),
		r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE),
		both.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND),
	} {
		if err := v.event(m, parts); err != nil {
			t.Fatal(err)
		}
	}
	if have := maps.routes[r.prefix].Kind; have != fib.Other { // which of the two it is, no message shows
		t.Errorf("mirror %v", have)
	}
}
