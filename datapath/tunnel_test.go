package datapath

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// tunnelled makes a proxy port port of a tunnel, joined with a port.
func (w *world) tunnelled(with int, t Tunnel) int {
	w.ports++
	port := w.ports
	w.check(w.d.Add(port, Port{MTU: 9000, External: true}))
	w.check(w.d.SetTunnel(port, t))
	w.change(with, func(p *Port) { p.MTU = 9000 })
	w.join(with, port)
	return port
}

// uplinked is a world with an uplink, which is the second port.
func inUplinkedWorld(t testing.TB, f func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.check(w.d.SetUplink(w.b))
		w.check(w.d.Add(w.a, Port{MTU: 9000, MAC: macA}))
		f(w)
	})
}

// run runs a program on a frame that comes in at a device.
func (w *world) run(p *ebpf.Program, device int, frame []byte) outcome {
	w.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256),
		Context: &skbuff{Ifindex: uint32(device)}}
	verdict, err := p.Run(&opts)
	w.check(err)
	return outcome{verdict, opts.DataOut, w.takeAll()}
}

// receive is what becomes of an outer packet that comes in by the uplink.
func (w *world) receive(outer []byte) outcome {
	w.Helper()
	return w.run(w.d.programs.UplinkIngress, w.b, outer)
}

// takeAll reads all counters, the underlay's too but ByLineCard, and starts them again at zero. What the underlay
// received has emerged from tunnels; or, where it gathers, does so by a device, and the line card has not dealt with
// it alone.
func (w *world) takeAll() map[string]uint64 {
	w.Helper()
	all := w.take()
	maps.Copy(all, must(w.d.Underlay()))
	want := all[Received]
	if w.gathers {
		want = 0
		if n := all[ByLineCard]; n > 0 {
			w.Errorf("%d packets by the line card alone", n)
		}
	}
	if want != w.emerged {
		w.Errorf("%d packets received, %d frames out of tunnels", all[Received], w.emerged)
	}
	delete(all, ByLineCard)
	w.check(w.d.maps.Underlays.Put(uint32(0), make([]objectUnderlay, ebpf.MustPossibleCPU())))
	return all
}

// What goes in at one end comes out at the other, byte for byte.
func TestTunnelsCarryAnyFrame(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			port := w.tunnelled(w.a, tunnel)
			for name, frame := range odd(macB) {
				w.name = tunnel.named() + ", " + name
				if runt := len(frame) < 14+20; runt && name != "nothing" || name == "runt of IPv6" {
					// the kernel would not make a frame of it here; a device does: TestLiveTunnels
					continue
				}
				sent := w.send(frame, skbuff{})
				sent.Counted = merge(sent.Counted, w.takeAll())
				want := tunnel.outer(frame, entropyOf(tunnel, sent.Frame))
				w.expect(sent, verdictRedirect, want,
					map[string]uint64{Sent: 1, fmt.Sprintf("handed %d", port): 1})

				frame = bytes.Clone(frame)
				to := macA
				if frame[0]&1 == 0 {
					copy(frame, to[:])
				}
				counted := map[string]uint64{Received: 1}
				if frame[0]&1 == 0 && (name == "IPv4" || name == "IPv6" || name == "TCP" ||
					name == "jumbo") {
					// others go through the port's device
					counted[fmt.Sprintf("handed %d", w.a)] = 1
				}
				w.expect(w.receive(tunnel.turned().outer(frame, around{sport: 50000, label: 7})),
					verdictRedirect, frame, counted)
			}
			w.check(w.d.Forget(port))
		}
	})
}

func merge(a, b map[string]uint64) map[string]uint64 {
	maps.Copy(a, b)
	return a
}

func TestTunnelledModeEncapsulates(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		port := w.tunnelled(w.port(macB), sorts[0])
		w.check(w.d.Set(w.a, Port{Mode: Tunnelled, Peer: port, MTU: 1500})) // the far end of the proxy port
		frame := packet{}.bytes()
		sent := w.send(frame, skbuff{})
		w.expect(outcome{sent.Verdict, sent.Frame, merge(sent.Counted, w.takeAll())}, verdictRedirect,
			sorts[0].outer(frame, around{}), map[string]uint64{Sent: 1})

		w.name = "no tunnel there"
		w.check(w.d.DeleteTunnel(port))
		sent = w.send(frame, skbuff{})
		w.expect(sent, verdictShot, frame, map[string]uint64{fmt.Sprintf("unknown tunnel %d", w.a): 1})

		w.name = "no port there"
		w.check(w.d.Forget(port))
		w.expect(w.send(frame, skbuff{}), verdictShot, frame,
			map[string]uint64{fmt.Sprintf("peer gone %d", w.a): 1})
	})
}

func TestTunnelsDropWhatTheyCannotCarry(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		port := w.tunnelled(w.a, sorts[0])
		frame := packet{payload: 3000}.bytes()
		w.name = "super-frame of no kind that the kernel knows"
		w.expect(w.send(frame, skbuff{GSOSize: 1000}), verdictShot, frame,
			map[string]uint64{fmt.Sprintf("super frame %d", w.a): 1})
		w.name = "too big"
		w.change(port, func(p *Port) { p.MTU = 1500 })
		w.expect(w.send(frame, skbuff{}), verdictShot, frame,
			map[string]uint64{fmt.Sprintf("too big %d", w.a): 1})
		w.name = "no uplink"
		w.check(w.d.SetUplink(0))
		frame = packet{}.bytes()
		w.expect(w.send(frame, skbuff{}), verdictShot, frame,
			map[string]uint64{fmt.Sprintf("no uplink %d", w.a): 1})
	})
}

func TestOuterHeadersAreAsTheTunnelSays(t *testing.T) {
	const ect0, ef = 2, 46 << 2
	inUplinkedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			for _, v6 := range []bool{false, true} {
				frame := packet{v6: v6}.bytes()
				setClass(frame, ef|ect0)
				for _, dscp := range []bool{false, true} {
					w.name = fmt.Sprintf("%s, IPv6 inside %v, DSCP %v", tunnel.named(), v6, dscp)
					tunnel.DSCP, tunnel.TTL = dscp, 17
					port := w.tunnelled(w.a, tunnel)
					have := w.send(frame, skbuff{}).Frame
					a := entropyOf(tunnel, have)
					a.ttl, a.class = 17, ect0
					if dscp {
						a.class |= ef
					}
					if diff := cmp.Diff(tunnel.outer(frame, a), have); diff != "" {
						w.Errorf("outer packet (-want +have):\n%s", diff)
					}
					w.check(w.d.Forget(port))
				}
			}
		}
	})
}

// setClass writes DSCP and ECN of an IP packet.
func setClass(frame []byte, class byte) {
	if frame[12] == 8 {
		frame[15] = class
		resum(frame)
		return
	}
	frame[14] = frame[14]&0xf0 | class>>4
	frame[15] = frame[15]&0x0f | class<<4
}

// RFC 6040, figure 4: rows are the codepoints inside, columns those outside, both in the order of their numbers.
func TestECNComesOutAsRFC6040Says(t *testing.T) {
	const dropped = 9
	table := [4][4]byte{
		{0, 0, 0, dropped},
		{1, 1, 1, 3},
		{2, 1, 2, 3},
		{3, 3, 3, 3},
	}
	inUplinkedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			port := w.tunnelled(w.a, tunnel)
			for inner, row := range table {
				for outer, want := range row {
					for _, v6 := range []bool{false, true} {
						w.name = fmt.Sprintf("%s, IPv6 inside %v, %d inside, %d outside",
							tunnel.named(), v6, inner, outer)
						frame := packet{v6: v6, to: macA}.bytes()
						setClass(frame, 10<<2|byte(inner))
						have := w.receive(tunnel.turned().outer(frame,
							around{class: 46<<2 | byte(outer)}))
						if want == dropped {
							w.expect(have, verdictShot, have.Frame,
								map[string]uint64{Received: 1,
									fmt.Sprintf("congestion %d", port): 1})
							continue
						}
						setClass(frame, 10<<2|want)
						w.expect(have, verdictRedirect, frame,
							map[string]uint64{Received: 1,
								fmt.Sprintf("handed %d", w.a): 1})
					}
				}
			}
			w.check(w.d.Forget(port))
		}
	})
}

// What is no packet of a tunnel that ends here goes nowhere, and is counted by its reason.
func TestOuterPacketsThatAreRefused(t *testing.T) {
	frame := packet{to: macA}.bytes()
	edit := func(at int, b ...byte) func(Tunnel, []byte) []byte {
		return func(t Tunnel, p []byte) []byte {
			copy(p[at:], b)
			if !t.Local.Is6() {
				resum(p)
			}
			return p
		}
	}
	cut := func(n int) func(Tunnel, []byte) []byte { return func(_ Tunnel, p []byte) []byte { return p[:n] } }
	cases := []struct {
		name   string
		sort   int // of sorts
		change func(t *Tunnel)
		around around
		edit   func(Tunnel, []byte) []byte
		why    string // empty: it is taken
		known  bool   // it is of a tunnel that ends here, and so counted at its port
	}{
		{name: "in order"},
		{name: "another peer", change: func(t *Tunnel) { t.Local = third4 }, why: "unknown tunnel"},
		{
			name:   "another peer, IPv6",
			sort:   3,
			change: func(t *Tunnel) { t.Local = third6 },
			why:    "unknown tunnel",
		},
		{name: "another key", change: func(t *Tunnel) { t.Key++ }, why: "unknown tunnel"},
		{name: "another VNI", sort: 1, change: func(t *Tunnel) { t.Key++ }, why: "unknown tunnel"},
		{name: "another address", change: func(t *Tunnel) { t.Peer = third4 }, why: "stray"},
		{name: "another kind", change: func(t *Tunnel) { t.Kind = VXLAN; t.Key = 1 }, why: "stray"},
		{name: "GRE with checksum", around: around{greFlags: 0x8000}, why: "checksum"},
		{name: "GRE with sequence", around: around{greFlags: 0x1000}},
		{name: "GRE with both, IPv6", sort: 2, around: around{greFlags: 0x9000}, why: "checksum"},
		{name: "GRE with routing", around: around{greFlags: 0x4000}, why: "malformed"},
		{name: "GRE with strict source route", around: around{greFlags: 0x0800}, why: "malformed"},
		{name: "GRE with bit 5", around: around{greFlags: 0x0400}, why: "malformed"},
		{name: "GRE with bits 6 to 12", around: around{greFlags: 0x03f8}}, // RFC 2784, 2.3: these are ignored
		{name: "GRE, version 1", around: around{greFlags: 1}, why: "malformed"},
		{name: "GRE without key", edit: edit(34, 0, 0), why: "stray"},
		{name: "GRE with IP inside", edit: edit(36, 8, 0), why: "stray"},
		{name: "VXLAN without I bit", sort: 1, around: around{noKey: true}, why: "malformed"},
		{
			name: "VXLAN with reserved bits",
			sort: 1,
			edit: func(_ Tunnel, p []byte) []byte { p[42] |= 0xf7; return p },
		},
		{name: "VXLAN, another length in UDP", sort: 1, edit: edit(38, 0, 99), why: "malformed"},
		{name: "VXLAN, wrong checksum", sort: 1, edit: edit(40, 0x12, 0x34), why: "checksum", known: true},
		{
			name:  "VXLAN, wrong checksum, IPv6",
			sort:  3,
			edit:  edit(60, 0x12, 0x34),
			why:   "checksum",
			known: true,
		},
		{name: "VXLAN, right checksum", sort: 1, edit: summed},
		{name: "VXLAN, right checksum, IPv6", sort: 3, edit: summed},
		{name: "VXLAN, unfinished checksum", sort: 1, edit: unfinished},
		{name: "VXLAN, unfinished checksum, IPv6", sort: 3, edit: unfinished},
		{name: "another UDP port", sort: 1, edit: edit(36, 0, 53), why: "stray"},
		{name: "IPv4 options", edit: edit(14, 0x46), why: "stray"},
		{name: "IPv4, another version", edit: edit(14, 0x55), why: "stray"},
		{
			name: "IPv4, wrong checksum",
			edit: func(_ Tunnel, p []byte) []byte { p[24]++; return p },
			why:  "malformed",
		},
		{name: "IPv4, longer than the frame", edit: edit(16, 1, 0), why: "malformed"},
		{name: "IPv4, too short for a frame", edit: edit(16, 0, 41), why: "malformed"},
		{name: "first fragment", edit: edit(20, 0x20, 0), why: "fragment"},
		{name: "other fragment", edit: edit(20, 0, 9), why: "stray"},
		{name: "IPv6, another version", sort: 2, edit: edit(14, 0x40), why: "malformed"},
		{name: "IPv6, longer than the frame", sort: 2, edit: edit(18, 1, 0), why: "malformed"},
		{name: "IPv6 extension header", sort: 2, edit: edit(20, 60), why: "stray"},
		{name: "runt", edit: cut(40), why: "stray"},
		{name: "runt of IPv6", sort: 2, edit: cut(60), why: "stray"},
		{name: "not IP", edit: edit(12, 8, 6), why: "stray"},
		{name: "padded", edit: func(_ Tunnel, p []byte) []byte { return append(p, 0, 0, 0, 0) }},
	}
	inUplinkedWorld(t, func(w *world) {
		for _, c := range cases {
			w.name = c.name
			port := w.tunnelled(w.a, sorts[c.sort])
			from := sorts[c.sort].turned()
			if c.change != nil {
				c.change(&from)
			}
			p := from.outer(frame, c.around)
			if c.edit != nil {
				p = c.edit(from, p)
			}
			have := w.receive(p)
			if c.why == "" {
				w.expect(have, verdictRedirect, frame,
					map[string]uint64{Received: 1, fmt.Sprintf("handed %d", w.a): 1})
			} else if c.known {
				w.expect(have, verdictShot, p, map[string]uint64{fmt.Sprintf("%s %d", c.why, port): 1})
			} else {
				w.expect(have, verdictShot, p, map[string]uint64{c.why: 1})
			}
			w.check(w.d.Forget(port))
		}
	})
}

// betweenTunnels tries every pair of tunnels, with two routers between: of each, a packet that comes to the line out
// of the first one.
func (w *world) betweenTunnels(try func(in, out Tunnel, p packet, l line)) {
	w.Helper()
	for _, in := range sorts {
		for _, out := range sorts {
			for _, v6 := range []bool{false, true} {
				w.name = fmt.Sprintf("%s to %s, IPv6 inside %v", in.named(), out.named(), v6)
				l := w.line(2)
				in.Key, out.Key, out.Peer = 100, 200, third4
				if out.Local.Is6() {
					out.Peer = third6
				}
				w.tunnelled(l.in[0], in)
				try(in, out, packet{v6: v6}, l)
				for port := range must(w.d.Tunnels()) {
					w.check(w.d.Forget(port))
				}
			}
		}
	}
}

// A frame that comes out of a tunnel walks, and may go into the next one, with all that routers did to it.
func TestWalkBetweenTunnels(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		w.betweenTunnels(func(in, out Tunnel, p packet, l line) {
			w.expect(w.receive(in.turned().outer(p.bytes(), around{})), verdictRedirect,
				p.after(macB, mac(3), 2),
				l.passed(2, Received, fmt.Sprintf("handed %d", l.end)))

			last := w.tunnelled(l.out[1], out)
			have := w.receive(in.turned().outer(p.bytes(), around{}))
			w.expect(have, verdictRedirect, out.outer(p.after(macB, mac(3), 2), entropyOf(out, have.Frame)),
				l.passed(2, Received, Sent, fmt.Sprintf("handed %d", last)))

			w.setNexthop(l.next[1], unresolved, l.out[1], macB)
			w.expect(w.receive(in.turned().outer(p.bytes(), around{})), verdictRedirect,
				p.after(mac(2), mac(1), 1),
				l.passed(1, Received, fmt.Sprintf("handed %d", l.in[1]),
					fmt.Sprintf("unresolved: router %d", l.routers[1])))
		})
	})
}

// What comes out of a tunnel goes the ways that a node's frames go.
func TestTunnelsLeadWhereLinksDo(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		frame := packet{to: macA}.bytes()
		tunnel := sorts[0]
		port := w.tunnelled(w.a, tunnel)
		for name, c := range map[string]struct {
			mode    Mode
			verdict uint32
			why     string
		}{
			"queue":     {Queue, verdictRedirect, Received},
			"bridge":    {Kernel, verdictRedirect, Received},
			"not wired": {None, verdictShot, fmt.Sprintf("not wired %d", port)},
		} {
			w.name = name
			w.change(port, func(p *Port) { p.Mode = c.mode })
			w.expect(w.receive(tunnel.turned().outer(frame, around{})), c.verdict, frame,
				map[string]uint64{Received: 1, c.why: 1})
		}
	})
}

// Frames of a flow leave alike, and flows differently.
func TestTunnelsSpreadFlows(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		for _, tunnel := range sorts[1:] {
			port := w.tunnelled(w.a, tunnel)
			seen := map[around]bool{}
			for flow := range 200 {
				p := packet{sport: uint16(2000 + flow), v6: flow%2 == 0}
				one := entropyOf(tunnel, w.send(p.bytes(), skbuff{}).Frame)
				p.payload = 100
				if two := entropyOf(tunnel, w.send(p.bytes(), skbuff{}).Frame); one != two {
					w.Errorf("%s: two frames of a flow: %+v, %+v", tunnel.named(), one, two)
				}
				if tunnel.Kind == VXLAN && one.sport < 49152 {
					w.Errorf("%s: source port %d", tunnel.named(), one.sport)
				}
				seen[one] = true
			}
			if len(seen) < 150 && (tunnel.Kind == VXLAN || tunnel.Local.Is6()) {
				w.Errorf("%s: %d of 200 flows can be told apart", tunnel.named(), len(seen))
			}
			first := packet{flags: 1}.bytes() // more fragments
			rest := packet{offset: 100, sport: 7}.bytes()
			if one, two := w.send(first, skbuff{}).Frame, w.send(rest, skbuff{}).Frame; entropyOf(tunnel,
				one) != entropyOf(tunnel, two) {
				w.Errorf("%s: fragments of a packet go different ways", tunnel.named())
			}
			lsps := map[around]bool{}
			for label := range uint32(100) {
				for _, ttl := range []uint8{64, 9} {
					frame := labelled(first, entry{16 + label, ttl, 0}, entry{99, ttl, 0})
					lsps[entropyOf(tunnel, w.send(frame, skbuff{}).Frame)] = true
				}
			}
			if n := len(lsps); n > 100 || n < 75 && (tunnel.Kind == VXLAN || tunnel.Local.Is6()) {
				w.Errorf("%s: 100 LSPs look like %d", tunnel.named(), n)
			}
			w.check(w.d.Forget(port))
		}
	})
}
