package fib

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What was written of a router's links, and what its next hops must therefore say: in every state that programs could
// see, each says what it said before or what it has to say now.
type links struct {
	up         map[int]bool
	neighbours map[station]Neighbour
}

func (l links) word(h station) uint64 {
	if !l.up[h.port] {
		return adjacency(nexthopUnresolved, [6]byte{})
	}
	if !h.address.IsValid() {
		return adjacency(nexthopLink, [6]byte{})
	}
	if n, ok := l.neighbours[h]; ok {
		return n.adjacency()
	}
	return adjacency(nexthopUnresolved, [6]byte{})
}

func (l links) clone() links {
	return links{up: maps.Clone(l.up), neighbours: maps.Clone(l.neighbours)}
}

func TestNextHopsFollowLinksAndNeighbours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlain()
		f := p.open(t)
		r, err := f.NewRouter(1)
		must(t, err)
		now := links{up: map[int]bool{}, neighbours: map[station]Neighbour{}}
		change := func(t *rapid.T, next links, do func() error) {
			before := map[station]uint64{}
			for k, h := range r.hops {
				at := k.station
				before[at] = p.hops[h.index].to
			}
			f.stored = func() {
				for k, h := range r.hops {
					at := k.station
					old, had := before[at]
					if got := p.hops[h.index].to; had && got != old && got != next.word(at) {
						t.Fatalf("next hop %v goes from %x to %x over %x", at, old,
							next.word(at), got)
					}
				}
			}
			must(t, do())
			f.stored = nil
			now = next
		}
		t.Repeat(map[string]func(*rapid.T){
			"route": func(t *rapid.T) {
				change(t, now, func() error { return r.SetRoute(drawPrefix(t), drawRoute(t)) })
			},
			"no route": func(t *rapid.T) {
				for prefix := range maps.Collect(r.Routes()) {
					change(t, now, func() error { return r.DeleteRoute(prefix) })
				}
			},
			"leg": func(t *rapid.T) {
				port, up := rapid.IntRange(1, 3).Draw(t, "port"), rapid.Bool().Draw(t, "up")
				next := now.clone()
				next.up[port] = up
				change(t, next, func() error { return r.SetLeg(port, Leg{Up: up}) })
			},
			"no leg": func(t *rapid.T) {
				port, next := rapid.IntRange(1, 3).Draw(t, "port"), now.clone()
				if _, ok := r.legs[port]; ok {
					delete(next.up, port)
					maps.DeleteFunc(next.neighbours,
						func(at station, _ Neighbour) bool { return at.port == port })
				}
				change(t, next, func() error { return r.DeleteLeg(port) })
			},
			"neighbour": func(t *rapid.T) {
				at := station{port: rapid.IntRange(1, 3).Draw(t, "port"),
					address: rapid.SampledFrom(gateways[1:]).Draw(t, "address")}
				n := Neighbour{MAC: [6]byte{2, rapid.Byte().Draw(t, "MAC")},
					Stale: rapid.Bool().Draw(t, "stale")}
				next := now.clone()
				next.neighbours[at] = n
				change(t, next, func() error { return r.SetNeighbour(at.port, at.address, n) })
			},
			"no neighbour": func(t *rapid.T) {
				at := station{port: rapid.IntRange(1, 3).Draw(t, "port"),
					address: rapid.SampledFrom(gateways[1:]).Draw(t, "address")}
				next := now.clone()
				delete(next.neighbours, at)
				change(t, next, func() error { return r.DeleteNeighbour(at.port, at.address) })
			},
			"": func(t *rapid.T) {
				for k, h := range r.hops {
					at := k.station
					if got := p.hops[h.index]; got.to != now.word(at) || int(got.port) != at.port {
						t.Fatalf("next hop %v is %+v, not %x", at, got, now.word(at))
					}
				}
				if len(p.neighbours) != len(now.neighbours) {
					t.Fatalf("neighbours are %v, not %v", p.neighbours, now.neighbours)
				}
				for at, n := range now.neighbours {
					got, ok := r.LookupNeighbour(at.port, at.address)
					if p.neighbours[at.key()] != n.adjacency() || !ok || got != n {
						t.Fatalf("neighbour %v is %x, %v, not %v", at, p.neighbours[at.key()],
							got, n)
					}
				}
			},
		})
		must(t, r.Close())
		empty(t, p, f)
	})
}

func TestAnAddressOfManyRoutersBelongsToMany(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	a, b, other := mustRouter(t, f), mustRouter(t, f), netip.MustParseAddr("203.0.113.1")
	stranger, err := f.NewRouter(2)
	must(t, err)
	owner := func() uint32 { return p.sources[sourceKey{Slice: 1, Address: other.As4()}] }
	must(t, stranger.SetAddress(other))
	must(t, a.SetAddress(other))
	if owner() != a.id {
		t.Errorf("the owner is %d, not %d", owner(), a.id)
	}
	must(t, b.SetAddress(other))
	if owner() != many {
		t.Errorf("the owner is %d, not many", owner())
	}
	must(t, a.Close())
	if owner() != b.id {
		t.Errorf("the owner is %d, not %d", owner(), b.id)
	}
	must(t, b.DeleteAddress(other))
	must(t, stranger.Close())
	if len(p.sources) > 0 {
		t.Errorf("left: %v", p.sources)
	}
}

func TestSharesAreExactToOneIn256(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 65536), 1, MaxPaths).Draw(t, "weights")
		paths, total := make([]Path, len(weights)), 0
		for i, w := range weights {
			paths[i].Weight = w
			total += w
		}
		dealt := spread(paths)
		count := make([]int, len(paths))
		for _, path := range dealt {
			count[path]++
		}
		if !slices.Equal(count, shares(paths)) {
			t.Fatalf("dealt %v of %v", count, shares(paths))
		}
		tiny := slices.ContainsFunc(weights, func(w int) bool { return 256*w < total })
		for i, n := range count {
			exact := float64(256*weights[i]) / float64(total)
			if n < 1 || !tiny && (float64(n) <= exact-1 || float64(n) >= exact+1) {
				t.Fatalf("weight %d of %d gets %d of 256", weights[i], total, n)
			}
		}
	})
}

func TestRoutesThatProgramsCannotTellApartAreTheSame(t *testing.T) {
	path := func(port, weight int) Path { return Path{Port: port, Weight: weight} }
	unicast := func(p ...Path) Route { return Route{Kind: Unicast, Paths: p} }
	for _, c := range []struct {
		name string
		a, b Route
		same bool
	}{
		{"order", unicast(path(1, 1), path(2, 1)), unicast(path(2, 1), path(1, 1)), true},
		{"weight of an only path", unicast(path(1, 0)), unicast(path(1, 9)), true},
		{"scale of weights", unicast(path(1, 1), path(2, 3)), unicast(path(1, 64), path(2, 192)), true},
		{"a path twice", unicast(path(1, 1), path(1, 1), path(2, 2)), unicast(path(1, 1), path(2, 1)), true},
		{"weights", unicast(path(1, 1), path(2, 1)), unicast(path(1, 1), path(2, 2)), false},
		{"ports", unicast(path(1, 1)), unicast(path(2, 1)), false},
		{"kinds", Route{Kind: Local}, Route{Kind: Reject}, false},
	} {
		if got := c.a.Same(c.b); got != c.same {
			t.Errorf("%s: %v and %v: same is %v", c.name, c.a, c.b, got)
		}
	}
}

func TestEqualRoutesShareOneGroup(t *testing.T) {
	f := newPlain().open(t)
	r := mustRouter(t, f)
	before := f.Usage()
	for i := range 200 {
		route := Route{Kind: Unicast, Paths: []Path{{Port: 1, Weight: 2}, {Port: 2}}}
		must(t, r.SetRoute(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i), 0, 0, 0}), 8), route))
	}
	after := f.Usage()
	if after.Nodes != before.Nodes+1 || after.Nexthops != 2 {
		t.Errorf("from %+v to %+v", before, after)
	}
}

// Package node writes legs of its own into the same map. A router that gets such a port has it whole.
func TestLegsOfPacketProgramsAreLeftAlone(t *testing.T) {
	p := newPlain()
	const legProgram = 1 // LEG_PROGRAM in bpf/fib.h
	var b [16]byte
	binary.NativeEndian.PutUint32(b[0:], 5)
	b[15] = legProgram
	foreign := legRecord{binary.NativeEndian.Uint64(b[0:]), binary.NativeEndian.Uint64(b[8:])}
	p.legs[3], p.legs[4] = foreign, foreign
	f := p.open(t)
	if got := f.Earlier(); len(got) > 0 {
		t.Errorf("legs of an earlier process: %v", got)
	}
	must(t, f.DropLeg(3))
	must(t, f.Reclaim())
	if p.legs[3] != foreign || p.legs[4] != foreign {
		t.Errorf("legs of packet programs were changed: %x", p.legs[3:5])
	}
	r := mustRouter(t, f)
	f.stored = func() {
		if l := &p.legs[4]; l.isRouters() && l.owner() == 5 {
			t.Errorf("for a moment the port was that of router 5: %x", *l)
		}
	}
	must(t, r.SetLeg(4, Leg{Up: true}))
	f.stored = nil
	if owner := p.legs[4].owner(); owner != r.id {
		t.Errorf("the port is that of router %d", owner)
	}
	must(t, r.DeleteLeg(3))
	if p.legs[3] != foreign {
		t.Errorf("the leg of a packet program was deleted: %x", p.legs[3])
	}
}
