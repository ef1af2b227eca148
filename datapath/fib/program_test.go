package fib

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/mapmem"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package fib -output-stem lookup -output-suffix _test -target bpfel -type lookup -type order object testdata/lookup.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"

func TestMain(m *testing.M) { testkit.Main(m) }

// machine is real maps, and programs that look into them.
type machine struct {
	testing.TB
	objects objectObjects
	lookups []objectLookup
	order   *objectOrder
	held    mapmem.Memory // the test's own
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	testkit.Root(t)
	testkit.LeakCheck(t, "fib_chunk")
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{TB: t}
	testkit.LoadObject(t, spec, &m.objects)
	t.Cleanup(func() { must(t, m.held.Close()) })
	if m.lookups, err = mapmem.Values[objectLookup](&m.held, m.objects.Lookups); err != nil {
		t.Fatal(err)
	}
	if m.order, err = mapmem.Value[objectOrder](&m.held, m.objects.Orders); err != nil {
		t.Fatal(err)
	}
	return m
}

// open opens the maps as another process would.
func (m *machine) open() *FIB {
	m.Helper()
	o := m.objects.objectMaps
	f, err := Open(Maps{
		Legs: o.Legs, Routers: o.Routers, Nodes: o.Nodes, Nexthops: o.Nexthops, Neighbours: o.Neighbours,
		Shortcuts: o.Shortcuts, Sources: o.Sources, PossibleSources: o.Suspects, Lease: o.Lease,
	})
	if err != nil {
		m.Fatal(err)
	}
	return f
}

func (m *machine) close(f *FIB) {
	m.Helper()
	must(m, f.Close())
}

// run looks destinations up in a program and says how long the whole took.
func (m *machine) run(p *ebpf.Program, root uint32, count int) time.Duration {
	m.Helper()
	m.order.Root, m.order.Count = root, uint32(count)
	result, took, err := p.Benchmark(make([]byte, 64), 1, nil)
	if err != nil || result != 0 {
		m.Fatalf("run: %d, %v", result, err)
	}
	return took
}

func (m *machine) address(i int, a netip.Addr) { copy(m.lookups[i].Destination[:], a.AsSlice()) }

func (m *machine) program(a netip.Addr) *ebpf.Program {
	if a.Is4() {
		return m.objects.LoopLookUp4
	}
	return m.objects.LoopLookUp6
}

// A table is routes as they might be: prefixes of the lengths that the Internet's tables have, dense as there, or at
// random.
func internet4(n int, r *rand.Rand) []netip.Prefix {
	// the Internet's have 60 % of 24, none of 32
	lengths := []int{24, 24, 24, 24, 24, 24, 23, 22, 22, 21, 20, 19, 16, 32}
	return distinct(n, func() netip.Prefix {
		a := netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.Uint32()), byte(r.Uint32()),
			byte(r.Uint32())})
		return netip.PrefixFrom(a, lengths[r.IntN(len(lengths))])
	})
}

func random4(n int, r *rand.Rand) []netip.Prefix {
	return distinct(n, func() netip.Prefix {
		a := netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.Uint32()), byte(r.Uint32()),
			byte(r.Uint32())})
		return netip.PrefixFrom(a, 8+r.IntN(25))
	})
}

// internet6 has allocations of 32 bits, most of whose routes are 48 or 44 bits long.
func internet6(n int, r *rand.Rand) []netip.Prefix {
	lengths := []int{48, 48, 48, 48, 48, 44, 40, 36, 32, 64}
	allocations := n/8 + 1
	return distinct(n, func() netip.Prefix {
		x := uint32(r.IntN(allocations)) * 2654435761 // spread
		b := [16]byte{0x20 | byte(x>>29&1), byte(x >> 24 & 0x1f), byte(x >> 16), byte(x >> 8), byte(r.Uint32()),
			byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}
		return netip.PrefixFrom(netip.AddrFrom16(b), lengths[r.IntN(len(lengths))])
	})
}

func random6(n int, r *rand.Rand) []netip.Prefix {
	return distinct(n, func() netip.Prefix {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return netip.PrefixFrom(netip.AddrFrom16(b), 16+r.IntN(113))
	})
}

var shapes = map[string]func(int, *rand.Rand) []netip.Prefix{
	"IPv4": internet4, "IPv4 random": random4, "IPv6": internet6, "IPv6 random": random6,
}

func distinct(n int, draw func() netip.Prefix) []netip.Prefix {
	seen := make(map[netip.Prefix]bool, n)
	all := make([]netip.Prefix, 0, n)
	for tries := 0; len(all) < n && tries < 4*n; tries++ {
		if p := draw().Masked(); !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}

// within draws an address that the prefix covers.
func within(p netip.Prefix, r *rand.Rand) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= byte(r.Uint32()) & (1 << (7 - bit%8))
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// someRoutes are routes by 16 next hops, one in eight by two at once.
func someRoute(i int) Route {
	gateway := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i % 16), 1}) }
	route := Route{Kind: Unicast, Paths: []Path{{Port: 1 + i%16, Gateway: gateway(i)}}}
	if i%8 == 0 {
		route.Paths = append(route.Paths, Path{Port: 1 + (i+1)%16, Gateway: gateway(i + 1), Weight: 3})
	}
	return route
}

func fill(t testing.TB, r *Router, prefixes []netip.Prefix) {
	t.Helper()
	for i, p := range prefixes {
		if err := r.SetRoute(p, someRoute(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProgramsFindWhatLookupFinds(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	const count = 100_000
	for name, shape := range shapes {
		random := newRand()
		r := mustRouter(t, f)
		prefixes := shape(10_000, random)
		fill(t, r, prefixes)
		for i := range prefixes {
			if i%3 == 0 {
				must(t, r.DeleteRoute(prefixes[i]))
			}
		}
		addresses := make([]netip.Addr, count)
		for i := range addresses {
			addresses[i] = within(prefixes[random.IntN(len(prefixes))], random)
			m.address(i, addresses[i])
		}
		root := r.trie(addresses[0]).root
		m.run(m.program(addresses[0]), root, count)
		for i, a := range addresses {
			e := r.trie(a).lookup(keyOf(a))
			if e.kind() == groupEntry {
				e = load(&f.node(e.index())[uint8(i)])
			}
			if got := m.lookups[i].Nexthop; got != e.index() {
				t.Fatalf("%s: %v, hash %d: a program finds next hop %d, Lookup %v", name, a, uint8(i),
					got, r.routeOf(e))
			}
		}
		must(t, r.Close())
	}
}

func TestGoHasTheTypesOfC(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]uintptr{
		"node": unsafe.Sizeof(node{}), "path": unsafe.Sizeof(path{}), "leg": unsafe.Sizeof(legRecord{}),
		"router":  unsafe.Sizeof(routerRecord{}),
		"nexthop": unsafe.Sizeof(nexthop{}), "neighbour": unsafe.Sizeof(neighbourKey{}),
		"source": unsafe.Sizeof(sourceKey{}), "shortcut": unsafe.Sizeof(shortcut{}),
	}
	for name, size := range sizes {
		var c *btf.Struct
		if err := spec.Types.TypeByName(name, &c); err != nil {
			t.Errorf("struct %s: %v", name, err)
		} else if uintptr(c.Size) != size {
			t.Errorf("struct %s: %d bytes in C, %d in Go", name, c.Size, size)
		}
	}
	offsets := map[string]uintptr{
		"path.high": 0, "path.low": 8, "path.length": unsafe.Offsetof(path{}.length),
		"path.match": unsafe.Offsetof(path{}.match),
		"path.miss":  unsafe.Offsetof(path{}.miss), "router.root4": 0, "router.root6": 4, "router.slice": 8,
		"nexthop.port": unsafe.Offsetof(nexthop{}.port),
		"leg.router":   0, "leg.mtu": 4, "leg.mac": 8, "leg.flags": 14, "neighbour.address": 4,
		"source.address": 4,
	}
	for name, want := range offsets {
		if got, ok := testkit.OffsetInC(t, spec, name); !ok || got != want {
			t.Errorf("%s: at %d in C (%v), %d in Go", name, got, ok, want)
		}
	}
	constants := map[string]uint64{
		"ENTRY_LEAF": uint64(leafEntry), "ENTRY_NODE": uint64(nodeEntry), "ENTRY_GROUP": uint64(groupEntry),
		"ENTRY_PATH":   uint64(pathEntry),
		"NEXTHOP_NONE": uint64(nexthopNone), "NEXTHOP_GATEWAY": uint64(nexthopGateway),
		"NEXTHOP_STALE": uint64(nexthopStale),
		"NEXTHOP_LINK":  uint64(nexthopLink), "NEXTHOP_UNRESOLVED": uint64(nexthopUnresolved),
		"NEXTHOP_LOCAL":  uint64(nexthopLocal),
		"NEXTHOP_REJECT": uint64(nexthopReject), "NEXTHOP_OTHER": uint64(nexthopOther),
		"LEG_UP": uint64(legUp), "LEG_IPV4": uint64(legIPv4), "LEG_IPV6": uint64(legIPv6),
		"LEG_LABEL_RULES": uint64(legLabelRules),
	}
	for _, enum := range []string{"entry_type", "nexthop_kind", "leg_flags"} {
		var c *btf.Enum
		if err := spec.Types.TypeByName(enum, &c); err != nil {
			t.Fatal(err)
		}
		for _, v := range c.Values {
			if want, ok := constants[v.Name]; !ok || v.Value != want {
				t.Errorf("%s is %d in C, %d in Go", v.Name, v.Value, want)
			}
			delete(constants, v.Name)
		}
	}
	if len(constants) > 0 {
		t.Errorf("not in C: %v", slices.Sorted(maps.Keys(constants)))
	}
	for name, want := range map[string]uint32{objectMapRouters: MaxRouters, objectMapNexthops: MaxNexthops,
		objectMapNodes:     maxChunks,
		objectMapShortcuts: maxShortcuts, objectMapSuspects: possibleBits / 64} {
		if got := spec.Maps[name].MaxEntries; got != want {
			t.Errorf("map %s: %d entries in C, %d in Go", name, got, want)
		}
	}
	if inner := spec.Maps[objectMapNodes].InnerMap; inner.MaxEntries != chunkNodes ||
		inner.ValueSize != nodeBytes || inner.Flags != unix.BPF_F_MMAPABLE {
		t.Errorf("chunks are %v in C", inner)
	}
}
