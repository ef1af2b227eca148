package fib

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A crash is a panic that a test throws at a store, as if the process had died there.
type crash struct{}

// until runs f and dies at the n-th store, if it comes to that.
func until(f *FIB, n int, do func()) (died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	f.stored = func() {
		if n--; n < 0 {
			panic(crash{})
		}
	}
	do()
	f.stored = nil
	return false
}

// What a process did when it died, and how: the next one must find the routes that were in force, and after the
// routers were replaced, nothing may be left of it.
func TestACrashLeaksNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlain()
		f := p.open(t)
		died := until(f, rapid.IntRange(0, 400).Draw(t, "stores"), func() {
			for router := range rapid.IntRange(1, 3).Draw(t, "routers") {
				r, err := f.NewRouter(7)
				must(t, err)
				live(t, r, router)
			}
		})
		t.Logf("died: %v", died)

		f = p.open(t)
		for _, port := range f.Earlier() {
			if rapid.Bool().Draw(t, "replaced") {
				r, err := f.NewRouter(7)
				must(t, err)
				must(t, r.SetAddress(netip.MustParseAddr("192.0.2.1")))
				must(t, r.SetLeg(port, Leg{Up: true}))
				must(t, f.Reclaim())
				must(t, r.Close())
			} else {
				must(t, f.DropLeg(port))
			}
		}
		must(t, f.Reclaim())
		empty(t, p, f)
		empty(t, p, p.open(t))
	})
}

// live does some of everything with a router.
func live(t *rapid.T, r *Router, number int) {
	port := 1 + number
	must(t, r.SetAddress(netip.MustParseAddr("192.0.2.1")))
	for range rapid.IntRange(0, 20).Draw(t, "routes") {
		must(t, r.SetRoute(drawPrefix(t), drawRoute(t)))
	}
	must(t, r.SetNeighbour(port, gateways[1], Neighbour{MAC: [6]byte{2}}))
	must(t, r.SetLeg(port, Leg{MTU: 1500, Up: true, IPv4: true}))
	must(t, r.Enable(true, true))
	all := maps.Collect(r.Routes())
	for _, p := range slices.SortedFunc(maps.Keys(all), netip.Prefix.Compare) {
		if rapid.Bool().Draw(t, "delete") {
			must(t, r.DeleteRoute(p))
		}
	}
	if rapid.Bool().Draw(t, "close") {
		must(t, r.Close())
	}
}

func empty(t fataler, p *plain, f *FIB) {
	if u := f.Usage(); f.nodes.used*nodePaths != len(f.paths.free)+len(f.paths.rest) || u.Nexthops != 0 ||
		u.Neighbours != 0 || u.Routers != 0 || f.paths.used != 0 {
		t.Fatalf("left: %+v, %d records", u, f.paths.used)
	}
	if len(p.neighbours) > 0 || len(p.sources) > 0 {
		t.Fatalf("left: neighbours %v, sources %v", p.neighbours, p.sources)
	}
	if i := slices.IndexFunc(p.shortcuts, func(s shortcut) bool { return s.neighbour != 0 }); i >= 0 {
		t.Fatalf("left: shortcut %d: %+v", i, p.shortcuts[i])
	}
	if i := slices.IndexFunc(p.possibleSources, func(word uint64) bool { return word != 0 }); i >= 0 {
		t.Fatalf("left: possible sources %d: %x", i, p.possibleSources[i])
	}
	if i := slices.IndexFunc(p.legs, func(l legRecord) bool { return l != legRecord{} }); i >= 0 {
		t.Fatalf("left: leg %d: %+v", i, p.legs[i])
	}
	if i := slices.IndexFunc(p.routers, func(r routerRecord) bool { return r.root4 != 0 || r.root6 != 0 }); i >= 0 {
		t.Fatalf("left: router %d: %+v", i, p.routers[i])
	}
}

func TestRoutersOfAnEarlierProcessStayInForceUntilReplaced(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	old := mustRouter(t, f)
	prefix, address := netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("198.51.100.9")
	must(t, old.SetRoute(prefix, Route{Kind: Unicast, Paths: []Path{{Port: 3, Gateway: gateways[1]}}}))
	must(t, old.SetNeighbour(3, gateways[1], Neighbour{MAC: [6]byte{2, 0, 0, 0, 0, 1}}))
	must(t, old.SetLeg(3, Leg{Up: true}))
	must(t, old.Enable(true, true))

	f = p.open(t)
	find := func() *nexthop {
		root := p.routers[p.legs[3].owner()].root4
		return &p.hops[(trie{account: &account{memory: f.memory}, root: root}).lookup(keyOf(address)).index()]
	}
	before := *find()
	next := mustRouter(t, f)
	for i := range 100 { // whatever is allocated now is not what the old router uses
		must(t, next.SetRoute(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(2 * i)}), 31),
			Route{Kind: Unicast, Paths: []Path{{Port: 100 + i}}}))
	}
	must(t, f.Reclaim())
	if after := *find(); after != before || before.port != 3 {
		t.Errorf("the old router's next hop changed from %+v to %+v", before, after)
	}
	if got := f.Earlier(); !slices.Equal(got, []int{3}) {
		t.Errorf("legs of an earlier process: %v", got)
	}
	must(t, next.Enable(true, false))
	must(t, next.SetLeg(3, Leg{Up: true}))
	if after := *find(); after.port != 104 {
		t.Errorf("the new router's next hop is not in force: %+v", after)
	}
	if u := f.Usage(); u.Routers != 2 {
		t.Errorf("before Reclaim: %+v", u)
	}
	must(t, f.Reclaim())
	if u := f.Usage(); u.Routers != 1 || u.Nexthops != 100 {
		t.Errorf("after Reclaim: %+v", u)
	}
}

func TestWhatMakesNoSenseIsNotAdopted(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	r := mustRouter(t, f)
	must(t, r.Enable(true, true))
	f.node(r.ipv4.root)[7] = uint32(newEntry(nodeEntry, r.ipv4.root)) // a loop
	f = p.open(t)
	if p.routers[r.id].root4 != 0 {
		t.Error("a trie with a loop stayed in force")
	}
	must(t, f.Reclaim())
	empty(t, p, f)
}

func TestFullMapsLeaveTheAnswersAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.fib.Limit(0)
		h.fib.nodes.free = h.fib.nodes.free[:rapid.IntRange(0, 12).Draw(t, "nodes")]
		h.fib.nexthops.free = h.fib.nexthops.free[:rapid.IntRange(0, 6).Draw(t, "next hops")]
		full := 0
		for range 60 {
			p, r := drawPrefix(t), drawRoute(t)
			h.look = append(h.look, edges(p)...)
			err := h.router.SetRoute(p, r)
			if err == nil {
				h.want[p] = r
			} else if !errors.Is(err, ErrFull) {
				t.Fatalf("set: %v", err)
			} else {
				full++
			}
			for _, a := range h.look {
				if got, want := h.router.Lookup(a), h.want.lookup(a); !got.Same(want) {
					t.Fatalf("%v goes to %v, not to %v", a, got, want)
				}
			}
		}
		h.sound()
		for p := range h.want {
			must(t, h.router.DeleteRoute(p))
		}
		if got := h.live(); got != (counted{nodes: 2}) {
			t.Fatalf("without routes there are %+v", got)
		}
	})
}
