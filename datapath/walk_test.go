package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/lab/testkit"
)

func inWorld(t testing.TB, f func(w *world)) {
	t.Helper()
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { _ = d.Close() }()
		w := newWorld(b, d)
		defer w.close()
		f(w)
	})
}

// passed is what is counted when a frame has passed routers.
func (l line) passed(routers int, more ...string) map[string]uint64 {
	all := map[string]uint64{}
	for i := range routers {
		all[fmt.Sprintf("walked in %d", l.in[i])] = 1
		all[fmt.Sprintf("walked out %d", l.out[i])] = 1
	}
	for _, m := range more {
		all[m] = 1
	}
	return all
}

func (w *world) expect(have outcome, verdict uint32, frame []byte, counted map[string]uint64) {
	w.Helper()
	if diff := cmp.Diff(outcome{verdict, frame, counted}, have); diff != "" {
		w.Errorf("outcome (-want +have):\n%s", diff)
	}
}

func TestWalkPassesRouters(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, hops := range []int{1, 2, 16, 63} {
			l := w.line(hops)
			for _, v6 := range []bool{false, true} {
				w.name = fmt.Sprintf("%d routers, IPv6: %v", hops, v6)
				p := packet{v6: v6}
				w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect,
					p.after(macB, mac(2*hops-1), hops),
					l.passed(hops, fmt.Sprintf("handed %d", l.end)))
			}
		}
	})
}

// A stale neighbour is shown one frame; the next ones walk.
func TestWalkAsksOnceAfterStaleNeighbour(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		p := packet{}
		w.setNexthop(l.next[0], stale, l.out[0], macB)
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.bytes(),
			l.passed(0, "stale neighbour: router 1", fmt.Sprintf("handed %d", l.in[0])))
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(1), 1),
			l.passed(1, fmt.Sprintf("handed %d", l.end)))
	})
}

func TestWalkFindsNeighboursOnTheLink(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		w.setNexthop(l.next[0], onLink, l.out[0], [6]byte{})
		w.neighbour(l.out[0], host4[1], gateway, macB)
		w.neighbour(l.out[0], host6[1], stale, macB)
		p := packet{}
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(1), 1),
			l.passed(1, fmt.Sprintf("handed %d", l.end)))
		p = packet{v6: true}
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.bytes(),
			l.passed(0, "stale neighbour: router 1", fmt.Sprintf("handed %d", l.in[0])))
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(1), 1),
			l.passed(1, fmt.Sprintf("handed %d", l.end)))
	})
}

// A shortcut is taken before the table is looked at, if it is to this neighbour. Of a stale one it is the shortcut
// that changes.
func TestWalkTakesShortcutsToNeighbours(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		p := packet{}
		w.setNexthop(l.next[0], onLink, l.out[0], [6]byte{})
		w.shortcut(l.out[0], host4[1], stale, macB, host4[1])
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.bytes(),
			l.passed(0, "stale neighbour: router 1", fmt.Sprintf("handed %d", l.in[0])))
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(1), 1),
			l.passed(1, fmt.Sprintf("handed %d", l.end)))
		w.shortcut(l.out[0], host4[0], gateway, mac(99), host4[1])
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.bytes(),
			l.passed(0, "unresolved: router 1", fmt.Sprintf("handed %d", l.in[0])))
		w.neighbour(l.out[0], host4[1], gateway, macB)
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(1), 1),
			l.passed(1, fmt.Sprintf("handed %d", l.end)))
	})
}

func TestWalkEndsAfter64Routers(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(66)
		p := packet{ttl: 255}
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(mac(128), mac(127), 64),
			l.passed(64, "loop: router 65", fmt.Sprintf("handed %d", l.in[64])))
	})
}

// Two routers that send to each other: the one where the TTL ends answers.
func TestWalkAroundALoopEndsAtTheRouterWhoseTurnItIs(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(3)
		first := w.nexthop(gateway, l.in[1], mac(1))
		w.leg(l.out[0], func(l *objectLeg) { l.Mac = mac(1) })
		w.setRoutes(l.routers[1], table{"0.0.0.0/0": first})
		// Router 1 of the line sends back to router 0, which came by another leg.
		p := packet{ttl: 10}
		o := w.send(p.bytes(), skbuff{})
		if o.Counted["redirect: router 2"] != 1 {
			w.Errorf("a frame that would leave as it came: %v", o.Counted)
		}
		back := w.port(mac(90))
		forth := w.port(mac(91))
		w.join(back, forth)
		w.leg(back, func(g *objectLeg) {
			*g = objectLeg{Router: l.routers[1], Mtu: 1500, Mac: mac(90),
				Flags: legAll}
		})
		w.leg(forth, func(g *objectLeg) {
			*g = objectLeg{Router: l.routers[0], Mtu: 1500, Mac: mac(91),
				Flags: legAll}
		})
		w.setNexthop(first, gateway, back, mac(91))
		o = w.send(p.bytes(), skbuff{})
		if o.Counted["ttl: router 2"] != 1 || !bytes.Equal(o.Frame, p.after(mac(2), mac(1), 9)) {
			w.Errorf("a loop of two routers, TTL 10: %v", o.Counted)
		}
	})
}

func TestWalkSpreadsFlowsByWeight(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(2)
		paths := make([]uint32, 4) // all to the second router, which sees different addresses
		for i := range paths {
			paths[i] = w.nexthop(gateway, l.out[1], mac(100+i))
		}
		g := w.group(paths[0], paths[1], paths[2], paths[3])
		w.setRoutes(l.routers[1], table{"0.0.0.0/0": g, "::/0": g})
		flows := 400
		if testkit.InVM() { // an emulated processor
			flows = 40
		}
		for _, v6 := range []bool{false, true} {
			chosen := map[byte]int{}
			for flow := range flows {
				p := packet{v6: v6, sport: uint16(2000 + flow), tcp: flow%2 == 0}
				one := w.send(p.bytes(), skbuff{}).Frame[5]
				p.payload = 100 // another frame of the flow
				if two := w.send(p.bytes(), skbuff{}).Frame[5]; one != two {
					w.Errorf("two frames of a flow went to %d and %d", one, two)
				}
				chosen[one]++
			}
			for i := range paths {
				if n := chosen[byte(100+i)]; n < flows*15/100 || n > flows*35/100 {
					w.Errorf("IPv6: %v: of %d flows, %d took path %d", v6, flows, n, i)
				}
			}
		}
	})
}

// What one router makes of flows tells nothing of what the next makes of them.
func TestWalkDoesNotPolarize(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(2)
		both := w.nexthop(gateway, l.out[0], mac(2))
		other := w.nexthop(none, 0, [6]byte{})
		w.setRoutes(l.routers[0], table{"0.0.0.0/0": w.group(both, other)})
		a, b := w.nexthop(gateway, l.out[1], mac(100)), w.nexthop(gateway, l.out[1], mac(101))
		w.setRoutes(l.routers[1], table{"0.0.0.0/0": w.group(a, b)})
		chosen := map[byte]int{}
		for flow := range 400 {
			p := packet{sport: uint16(2000 + flow)}
			chosen[w.send(p.bytes(), skbuff{}).Frame[5]]++
		}
		if chosen[100] < 60 || chosen[101] < 60 {
			w.Errorf("of 400 flows: %v", chosen)
		}
	})
}

func TestWalkTakesLongestPrefix(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		via := func(n int) uint32 { return w.nexthop(gateway, l.out[0], mac(n)) }
		w.setRoutes(l.routers[0], table{
			"0.0.0.0/0": via(10), "198.51.100.0/24": via(11), "198.51.100.20/32": via(12),
			"198.51.100.16/29": via(13), "198.51.0.0/16": via(14),
			"::/0": via(20), "2001:db8::/32": via(21), "2001:db8:b::/48": via(22),
			"2001:db8:b::20/128": via(23), "2001:db8:b::/61": via(24),
		})
		for to, want := range map[string]byte{
			"203.0.113.1": 10, "198.51.100.99": 11, "198.51.100.20": 12, "198.51.100.21": 13,
			"198.51.99.1": 14,
			"2001:db9::1": 20, "2001:db8:c::1": 21, "2001:db8:b:8::1": 22, "2001:db8:b::20": 23,
			"2001:db8:b:7::1": 24,
		} {
			p := packet{dest: to, v6: strings.Contains(to, ":")}
			if have := w.send(p.bytes(), skbuff{}).Frame[5]; have != want {
				w.Errorf("%s went to %d, want %d", to, have, want)
			}
		}
	})
}

// How a link behind a router ends a walk: port is the last router's.
func TestWalkEndsWhereALinkDoes(t *testing.T) {
	cases := []struct {
		name    string
		change  func(w *world, l line)
		verdict uint32
		counted func(l line) string
		packet  packet
		ctx     skbuff
	}{
		{
			name: "not wired", verdict: verdictShot,
			counted: func(l line) string { return fmt.Sprintf("not wired %d", l.out[1]) },
			change:  func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = None }) },
		},
		{
			name: "peer gone", verdict: verdictShot,
			counted: func(l line) string { return fmt.Sprintf("peer gone %d", l.out[1]) },
			change:  func(w *world, l line) { w.change(l.end, func(p *Port) { p.Peer = 4711 }) },
		},
		{
			name: "too big for the node", verdict: verdictShot,
			counted: func(l line) string { return fmt.Sprintf("too big %d", l.out[1]) },
			change: func(w *world, l line) {
				w.change(l.end,
					func(p *Port) { p.MTU = 1000 })
			}, packet: packet{payload: 1000},
		},
		{ // r2's kernel would send it, with another MTU inside than the link's; its veth pair would drop it
			name: "too big for the router's end", verdict: verdictShot,
			counted: func(l line) string { return fmt.Sprintf("too big %d", l.out[1]) },
			change: func(w *world, l line) {
				w.change(l.out[1], func(p *Port) { p.MTU = 1000 })
				w.change(l.end, func(p *Port) { p.MTU = 9000 })
			}, packet: packet{payload: 1000},
		},
		{
			name: "queue", verdict: verdictRedirect,
			change: func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = Queue }) },
		},
		{
			name: "bridge", verdict: verdictRedirect,
			change: func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = Kernel }) },
		},
		{
			name: "external", verdict: verdictRedirect,
			change: func(w *world, l line) { w.change(l.end, func(p *Port) { p.External = true }) },
		},
		{
			name: "other station", verdict: verdictRedirect,
			change: func(w *world, l line) { w.change(l.end, func(p *Port) { p.MAC = macOther }) },
		},
		{
			name: "super-frame", verdict: verdictRedirect,
			counted: func(l line) string { return fmt.Sprintf("handed %d", l.end) },
			packet:  packet{tcp: true, payload: 3000}, ctx: skbuff{GSOSize: 1460},
		},
	}
	inWorld(t, func(w *world) {
		for _, c := range cases {
			w.name = c.name
			l := w.line(2)
			if c.change != nil {
				c.change(w, l)
			}
			frame := c.packet.after(macB, mac(3), 2)
			counted := l.passed(2)
			if c.counted != nil {
				counted[c.counted(l)] = 1
			}
			have := w.send(c.packet.bytes(), c.ctx)
			if c.verdict == verdictShot {
				frame = have.Frame
			}
			w.expect(have, c.verdict, frame, counted)
		}
	})
}

// Checksums at the edges: what ip_decrease_ttl() would write, for all values of the checksum.
func TestWalkKeepsChecksumRight(t *testing.T) {
	inWorld(t, func(w *world) {
		w.line(3)
		for id := range 65536 {
			p := packet{}.bytes()
			binary.BigEndian.PutUint16(p[18:], uint16(id)) // identification: the checksum takes all values
			want := bytes.Clone(resum(p))
			copy(want, macB[:])
			m := mac(5)
			copy(want[6:], m[:])
			want[22] -= 3
			for range 3 {
				check := uint32(binary.LittleEndian.Uint16(want[24:])) + 1
				if check >= 0xffff {
					check++
				}
				binary.LittleEndian.PutUint16(want[24:], uint16(check))
			}
			opts := ebpf.RunOptions{Data: p, DataOut: make([]byte, 256),
				Context: &skbuff{Ifindex: uint32(w.a)}}
			_, err := w.d.programs.PortIngress.Run(&opts)
			w.check(err)
			if !bytes.Equal(opts.DataOut, want) {
				w.Errorf("identification %d: %s", id, cmp.Diff(want, opts.DataOut))
				return
			}
		}
	})
}
