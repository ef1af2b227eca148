package fib

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestProgramsFindOldOrNewWhileRoutesChange lets a program look up all the time while routes come and go in so little
// memory that everything given back is soon used again. Each prefix has a next hop of its own: so an answer that no
// covering prefix ever gave was found in what is half written. (That the wait for programs is left out, it does not
// notice: the moment is too short to be met.)
func TestProgramsFindOldOrNewWhileRoutesChange(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	r, random := mustRouter(t, f), newRand()
	prefixes := distinct(400, func() netip.Prefix {
		b := [4]byte{10, byte(random.IntN(3)), byte(random.IntN(4) * 64), byte(random.Uint32())}
		return netip.PrefixFrom(netip.AddrFrom4(b), 8+random.IntN(25))
	})
	route := func(i int) Route { return Route{Kind: Unicast, Paths: []Path{{Port: 1 + i}}} }
	for i := range prefixes { // keeps the next hop
		must(t, r.SetRoute(netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, byte(i >> 8), byte(i)}), 32),
			route(i)))
	}
	f.Limit(0)
	f.mu.Lock()
	f.nodes.free = f.nodes.free[:40]
	f.mu.Unlock()

	const count = 1 << 15
	allowed := make([][]uint32, count)
	for i := range count {
		a := within(prefixes[random.IntN(len(prefixes))], random)
		m.address(i, a)
		allowed[i] = []uint32{hopNone}
		for n, p := range prefixes {
			if p.Contains(a) {
				allowed[i] = append(allowed[i], r.hops[hopKey{station: station{port: 1 + n}}].index)
			}
		}
	}
	var stop atomic.Bool
	changed := make(chan int)
	go func() { changed <- change(t, r, prefixes, route, &stop) }()
	found := map[uint32]bool{}
	for range 300 {
		m.run(m.objects.LoopLookUp4, r.ipv4.root, count)
		for i := range count {
			found[m.lookups[i].Nexthop] = true
			if !slices.Contains(allowed[i], m.lookups[i].Nexthop) {
				t.Errorf("a program found next hop %d for % d, which can be one of %v",
					m.lookups[i].Nexthop, m.lookups[i].Destination[:4], allowed[i])
				break
			}
		}
	}
	stop.Store(true)
	if n := <-changed; n < 1000 || len(found) < len(prefixes)/2 {
		t.Errorf("nothing was tested: %d changes, %d next hops found", n, len(found))
	}
}

// change sets and deletes routes at random until stopped, and says how many.
func change(t *testing.T, r *Router, prefixes []netip.Prefix, route func(int) Route, stop *atomic.Bool) int {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	n := 0
	for ; !stop.Load(); n++ {
		i := random.IntN(len(prefixes))
		if random.IntN(2) == 0 {
			_ = r.SetRoute(prefixes[i], route(i)) // it may not fit
		} else if err := r.DeleteRoute(prefixes[i]); err != nil {
			t.Error(err)
		}
	}
	return n
}

func TestTheNextProcessAdoptsRealMaps(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	r, random := mustRouter(t, f), newRand()
	prefixes := internet4(5000, random)
	fill(t, r, prefixes)
	must(t, r.SetNeighbour(9, gateways[1], Neighbour{MAC: [6]byte{2, 0, 0, 0, 0, 9}, Stale: true}))
	if n, ok := r.LookupNeighbour(9, gateways[1]); !ok ||
		n != (Neighbour{MAC: [6]byte{2, 0, 0, 0, 0, 9}, Stale: true}) {
		t.Errorf("neighbour: %+v, %v", n, ok)
	}
	must(t, r.SetAddress(netip.MustParseAddr("192.0.2.1")))
	must(t, r.SetLeg(7, Leg{MTU: 1500, Up: true, IPv4: true}))
	must(t, r.Enable(true, true))
	must(t, f.Renew(time.Minute))
	const count = 10_000
	for i := range count {
		m.address(i, within(prefixes[random.IntN(len(prefixes))], random))
	}
	look := func(root uint32) []uint32 {
		m.run(m.objects.LoopLookUp4, root, count)
		found := make([]uint32, count)
		for i := range found {
			found[i] = m.lookups[i].Nexthop
		}
		return found
	}
	root, before, used := r.ipv4.root, look(r.ipv4.root), f.Usage()
	m.close(f)

	f = m.open()
	defer m.close(f)
	if got := f.Usage(); got != used {
		t.Errorf("adopted %+v of %+v", got, used)
	}
	fill(t, mustRouter(t, f), internet4(5000, random))
	must(t, f.Reclaim())
	if !slices.Equal(look(root), before) {
		t.Error("the routes of the process before have changed")
	}
	must(t, f.DropLeg(7))
	must(t, f.Reclaim())
	if u := f.Usage(); u.Routers != 1 || u.Neighbours != 0 {
		t.Errorf("left by the process before: %+v", u)
	}
}

func TestChunksBehindOneThatFailsAreNotKept(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	k := f.kernel.(*mappings)
	before := k.Mapped()
	if chunks, err := k.grow(maxChunks-1, 2); len(chunks) != 1 || err != nil {
		t.Errorf("one of two chunks has a place: %d, %v", len(chunks), err)
	}
	if chunks, err := k.grow(maxChunks, 2); len(chunks) != 0 || err == nil {
		t.Errorf("none of two chunks has a place: %d, %v", len(chunks), err)
	}
	if got := k.Mapped() - before; got != 1 {
		t.Errorf("%d chunks are mapped, not 1", got)
	}
}
