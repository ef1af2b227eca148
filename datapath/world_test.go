package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// world is a virtual network in maps that a test writes itself: the plain version of what package fib does. Unless it
// is live, there are no nodes; ports are numbers, but for the first, from which frames are sent.
type world struct {
	*bench
	d        *DataPath
	ports    int // the highest
	nexthops uint32
	nodes    uint32
	routers  uint32
	chunk    *ebpf.Map
	stations map[int]*station // behind real ports, in a world that is live; else nil
	bare     bool             // new ports are without a program
	emerged  uint64           // frames out of tunnels, when counters were last taken
	gathers  bool             // the line card sends them to a device that makes super-frames
	takesXDP bool             // devices of new ports take frames from XDP
	reader   *UnwalkedReader  // nil: nothing has been read
}

// Kinds of next hops (bpf/fib.h).
const (
	none = iota
	gateway
	stale
	onLink
	unresolved
	local
	reject
	other
)

// Entry types and flags of legs (bpf/fib.h).
const (
	entryNode  = 1 << 30
	entryGroup = 2 << 30

	legUp         = 1
	legIPv4       = 2
	legIPv6       = 4
	legLabelRules = 8

	legAll = legUp | legIPv4 | legIPv6
)

const many = 0xffffffff

func newWorld(b *bench, d *DataPath) *world {
	w := &world{bench: b, d: d, ports: 100}
	w.check(d.need(allNeeds)) // once, while there are no ports to attach newer programs to
	spec := must(loadObject())
	w.chunk = must(ebpf.NewMap(spec.Maps[objectMapNodes].InnerMap))
	w.check(d.maps.Nodes.Put(uint32(0), w.chunk))
	w.lease(time.Hour)
	return w
}

func (w *world) close() {
	if w.reader != nil {
		w.check(w.reader.Close())
	}
	for _, s := range w.stations {
		w.check(s.close())
	}
	w.check(w.chunk.Close())
}

// lease vouches for the maps, for so long.
func (w *world) lease(d time.Duration) {
	var now unix.Timespec
	w.check(unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	w.check(w.d.maps.Lease.Put(uint32(0), uint64(now.Nano()+int64(d))))
}

// port makes a port of a node with this address.
func (w *world) port(mac [6]byte) int {
	w.ports++
	port := w.ports
	if w.stations != nil {
		port = w.plug(mac)
	}
	w.check(w.d.Add(port, Port{MTU: 1500, MAC: mac}))
	if w.takesXDP {
		w.check(w.d.AllowXDPToPort(port, port))
	}
	return port
}

// change edits a port's record.
func (w *world) change(port int, edit func(*Port)) {
	p, _, err := w.d.Port(port)
	w.check(err)
	edit(&p)
	w.check(w.d.Set(port, p))
}

func (w *world) join(a, b int) {
	w.change(a, func(p *Port) { p.Mode, p.Peer = Peer, b })
	w.change(b, func(p *Port) { p.Mode, p.Peer = Peer, a })
}

func (w *world) leg(port int, edit func(*objectLeg)) {
	var l objectLeg
	w.check(w.d.maps.Legs.Lookup(uint32(port), &l))
	edit(&l)
	w.check(w.d.maps.Legs.Put(uint32(port), l))
}

// nexthop makes one and returns its index.
func (w *world) nexthop(kind byte, port int, mac [6]byte) uint32 {
	w.nexthops++
	w.setNexthop(w.nexthops, kind, port, mac)
	return w.nexthops
}

func (w *world) setNexthop(index uint32, kind byte, port int, mac [6]byte) {
	var b [16]byte
	copy(b[:], mac[:])
	b[6] = kind
	binary.NativeEndian.PutUint32(b[8:], uint32(port))
	w.check(w.d.maps.Nexthops.Put(index, b[:]))
}

func (w *world) neighbour(port int, addr netip.Addr, kind byte, mac [6]byte) {
	key := binary.NativeEndian.AppendUint32(nil, uint32(port))
	a := addr.As16()
	w.check(w.d.maps.Neighbours.Put(append(key, a[:]...), append(mac[:], kind, 0)))
}

// shortcut puts one to a neighbour at the place of another.
func (w *world) shortcut(port int, addr netip.Addr, kind byte, mac [6]byte, at netip.Addr) {
	key := func(addr netip.Addr) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, uint32(port)), addr.AsSlice()...)
	}
	place := uint32(binary.NativeEndian.Uint64(key(at)) * 0x9e3779b97f4a7c15 >> 48)
	w.check(w.d.maps.Shortcuts.Put(place, append(append(mac[:], kind, 0), key(addr)...)))
}

func (w *world) source(addr netip.Addr, router uint32) {
	w.check(w.d.maps.Sources.Put(append(binary.NativeEndian.AppendUint32(nil, slice), addr.AsSlice()...), router))
	const bits = 1 << 19 // POSSIBLE_SOURCES in bpf/fib.h
	end := binary.BigEndian.Uint32(addr.AsSlice()) % bits
	w.check(w.d.maps.Suspects.Put(end/64, uint64(1)<<(end%64)))
}

const slice = 7 // whose the world is

// table is a router's routes: next hops, or an entry that group returned.
type table map[string]uint32

// router takes the next id.
func (w *world) router(routes table) uint32 {
	w.routers++
	w.setRoutes(w.routers, routes)
	return w.routers
}

func (w *world) setRoutes(id uint32, routes table) {
	w.check(w.d.maps.Routers.Put(id, []uint32{w.trie(routes, true), w.trie(routes, false), slice, 0}))
}

// group is an entry out of which the flow's hash chooses.
func (w *world) group(nexthops ...uint32) uint32 {
	var n [256]uint32
	for i := range n {
		n[i] = nexthops[i%len(nexthops)]
	}
	return entryGroup | w.node(n)
}

func (w *world) node(entries [256]uint32) uint32 {
	w.nodes++
	w.check(w.chunk.Put(w.nodes, entries[:]))
	return w.nodes
}

// trie builds the nodes for one family, and returns the root.
func (w *world) trie(routes table, ipv4 bool) uint32 {
	type route struct {
		prefix netip.Prefix
		entry  uint32
	}
	var all []route
	for text, entry := range routes {
		if p := netip.MustParsePrefix(text); p.Addr().Is4() == ipv4 {
			all = append(all, route{p, entry})
		}
	}
	var build func(above []byte) uint32
	build = func(above []byte) uint32 {
		var n [256]uint32
		for i := range n {
			path := append(append([]byte{}, above...), byte(i))
			bytes := make([]byte, map[bool]int{true: 4, false: 16}[ipv4])
			copy(bytes, path)
			here, _ := netip.AddrFromSlice(bytes)
			longest, deeper := -1, false
			for _, r := range all {
				bits := r.prefix.Bits()
				switch {
				case bits <= 8*len(path) && r.prefix.Contains(here) && bits > longest:
					longest, n[i] = bits, r.entry
				case bits > 8*len(path) && netip.PrefixFrom(here,
					8*len(path)).Contains(r.prefix.Addr()):
					deeper = true
				}
			}
			if deeper {
				n[i] = entryNode | build(path)
			}
		}
		return w.node(n)
	}
	return build(nil)
}

// mac of an interface of the test's network.
func mac(n int) [6]byte { return [6]byte{2, 1, 0, 0, byte(n >> 8), byte(n)} }

// line is a chain of routers between two hosts: port b.a, and the last.
type line struct {
	routers []uint32
	in, out []int    // ports of each router, by position
	next    []uint32 // of each router, towards the second host
	end     int
}

// line builds routers that send everything to the next, and the last to the second host, whose address is macB. The
// first host's frames go to gatewayMAC.
func (w *world) line(hops int) line {
	var l line
	w.check(w.d.Add(w.a, Port{MTU: 1500, MAC: macA}))
	from := w.a
	for i := range hops {
		in, out := w.port(mac(2*i)), w.port(mac(2*i+1))
		w.join(from, in)
		to := mac(2 * (i + 1))
		if i == hops-1 {
			to = macB
		}
		next := w.nexthop(gateway, out, to)
		id := w.router(table{"0.0.0.0/0": next, "::/0": next})
		for port, m := range map[int][6]byte{in: mac(2 * i), out: mac(2*i + 1)} {
			w.leg(port, func(l *objectLeg) { *l = objectLeg{Router: id, Mtu: 1500, Mac: m, Flags: legAll} })
		}
		l.routers, l.in, l.out, l.next = append(l.routers, id), append(l.in, in), append(l.out,
			out), append(l.next, next)
		from = out
	}
	l.end = w.port(macB)
	w.join(from, l.end)
	return l
}

// outcome is what a program tells of a frame, and what was counted.
type outcome struct {
	Verdict uint32
	Frame   []byte
	Counted map[string]uint64
}

// send puts a frame into the first port, and takes all counters.
func (w *world) send(frame []byte, ctx skbuff) outcome {
	ctx.Ifindex = uint32(w.a)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: &ctx}
	verdict, err := w.d.programs.PortIngress.Run(&opts)
	w.check(err)
	return outcome{verdict, opts.DataOut, w.take()}
}

// take reads all counters but Emerged, by what is counted where, and starts them again at zero. Ports and routers go
// by their place in a line: "in 0", "out 0", "in 1", ...; what is walked is so many frames of so many bytes, which
// must be the same.
func (w *world) take() map[string]uint64 {
	all := map[string]uint64{}
	w.emerged = 0
	for port, c := range must(w.d.Counters()) {
		w.emerged += c.Emerged.Frames
		if e := must(w.d.encapsulation(port)); c.Emerged.Frames > 0 && e.Kind == 0 {
			w.Errorf("%d frames out of a tunnel at port %d, where none begins", c.Emerged.Frames, port)
		}
		count := func(what string, t Traffic) {
			if t.Frames > 0 {
				all[fmt.Sprintf("%s %d", what, port)] = t.Frames
			}
		}
		count("handed", c.Handed)
		count("walked in", c.WalkedIn)
		count("walked out", c.WalkedOut)
		for why, n := range c.Dropped {
			all[fmt.Sprintf("%s %d", why, port)] = n
		}
		w.check(w.d.clearCounters(port))
	}
	for id := range w.routers + 1 {
		for why, n := range must(w.d.Punted(id)) {
			all[fmt.Sprintf("%s: router %d", why, id)] = n
		}
		w.check(w.d.SetPunted(id, nil))
		w.check(w.d.maps.UnwalkedFull.Put(id, uint64(0)))
	}
	return all
}
