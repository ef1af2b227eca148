package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

// The line card gives what the three programs of tc give together, or leaves the packet as it came.
func TestTunnelCardDoesWhatItCanAndLeavesTheRest(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		w.betweenTunnels(func(in, out Tunnel, p packet, l line) {
			came := in.turned().outer(p.bytes(), around{to: macHere, from: macThere})
			w.expect(w.card(came), xdpPass, came, map[string]uint64{}) // no device takes it
			w.check(w.d.AllowXDPToPort(l.end, w.b))
			w.expect(w.card(came), xdpRedirect, p.after(macB, mac(3), 2), l.passed(2, Received))

			last := w.tunnelled(l.out[1], out)
			have := w.card(came)
			a := entropyOf(out, have.Frame)
			a.to, a.from = macThere, macHere
			w.expect(have, xdpTX, out.outer(p.after(macB, mac(3), 2), a),
				l.passed(2, Received, Sent, fmt.Sprintf("handed %d", last)))

			w.setNexthop(l.next[1], unresolved, l.out[1], macB)
			w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			w.setNexthop(l.next[1], gateway, l.out[1], macB)
			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = 0 }))
			w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = uint32(w.b) }))
		})
	})
}

// What needs no router is delivered as it is.
func TestTunnelCardDeliversAnyFrame(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		end := w.port(macB)
		w.check(w.d.AllowXDPToPort(end, w.b))
		for _, tunnel := range sorts {
			port := w.tunnelled(end, tunnel)
			for name, frame := range odd(macB) {
				if len(frame) > 3000 {
					continue // more than one page
				}
				w.name = tunnel.named() + ", " + name
				came := tunnel.turned().outer(frame, around{to: macHere, from: macThere})
				w.expect(w.card(came), xdpRedirect, frame, map[string]uint64{Received: 1})
				came = append(came, 0)
				w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			}
			w.check(w.d.Forget(port))
		}
	})
}

func TestTunnelCardLeavesWhatECNWouldChange(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		end := w.port(macB)
		w.check(w.d.AllowXDPToPort(end, w.b))
		for _, tunnel := range sorts {
			port := w.tunnelled(end, tunnel)
			for inner := range byte(4) {
				for outer := range byte(4) {
					w.name = fmt.Sprintf("%s, %d inside, %d outside", tunnel.named(), inner, outer)
					frame := packet{to: macB}.bytes()
					setClass(frame, inner)
					came := tunnel.turned().outer(frame,
						around{to: macHere, from: macThere, class: outer})
					if (outer == 3 && inner != 3) || (outer == 1 && inner == 2) {
						w.expect(w.card(came), xdpPass, came, map[string]uint64{})
					} else {
						w.expect(w.card(came), xdpRedirect, frame,
							map[string]uint64{Received: 1})
					}
				}
			}
			w.check(w.d.Forget(port))
		}
	})
}

// Segments of TCP go to where super-frames are made of them, if the tunnel has such a place, and the underlay counts
// them: that device counts what emerges.
func TestTunnelCardGathersSegmentsOfTCP(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		end, other := w.port(macB), w.port(macB)
		for _, tunnel := range sorts {
			port := w.tunnelled(end, tunnel)
			p := packet{to: macB, tcp: true, payload: 1200}
			six, udp, long := p, p, p
			six.v6, udp.tcp, long.payload = true, false, 6000
			card := func(frame []byte, class uint8) outcome {
				return w.card(tunnel.turned().outer(frame,
					around{to: macHere, from: macThere, class: class}))
			}
			pass := func(name string, frame []byte, class uint8) {
				w.name = tunnel.named() + ", " + name
				w.expect(card(frame, class), xdpPass,
					tunnel.turned().outer(frame,
						around{to: macHere, from: macThere, class: class}), map[string]uint64{})
			}
			pass("no device", p.bytes(), 0)
			w.check(w.d.AllowXDPToPort(port, w.b))
			pass("UDP", udp.bytes(), 0)
			pass("ARP", ethernet(broadcast, macA, 0x0806, 60), 0)
			pass("too short", p.bytes()[:14+20+19], 0)
			pass("tagged", tagged(p.bytes(), 0x8100, 7), 0)
			pass("congested, and cannot say so", p.bytes(), 3)
			w.change(port, func(r *Port) { r.MTU = 1200 })
			pass("too big", p.bytes(), 0)
			w.change(port, func(r *Port) { r.MTU, r.Mode = 9000, Queue })
			pass("into a queue", p.bytes(), 0)

			w.gathers = true
			for _, mode := range []Mode{Peer, Kernel} { // the frame will enter there by tc
				w.change(port, func(r *Port) { r.Mode = mode })
				pass("in several buffers, which Linux before 6.3 does not redirect", long.bytes(), 0)
				for name, sent := range map[string]packet{"IPv4": p, "IPv6": six} {
					w.name = fmt.Sprintf("%s, %s, mode %d", tunnel.named(), name, mode)
					w.expect(card(sent.bytes(), 0), xdpRedirect, sent.bytes(),
						map[string]uint64{Received: 1})
					for inner := range byte(4) {
						frame, marked := sent.bytes(), sent.bytes()
						setClass(frame, inner)
						setClass(marked, 3)
						if inner != 0 {
							w.expect(card(frame, 3), xdpRedirect, marked,
								map[string]uint64{Received: 1})
						}
						if inner == 2 {
							setClass(marked, 1)
							w.expect(card(frame, 1), xdpRedirect, marked,
								map[string]uint64{Received: 1})
						}
					}
				}
			}
			w.gathers = false

			w.name = tunnel.named() + ", the end takes frames itself"
			w.change(port, func(r *Port) { r.Mode = Peer })
			w.check(w.d.AllowXDPToPort(end, w.b))
			w.expect(card(p.bytes(), 0), xdpRedirect, p.bytes(), map[string]uint64{Received: 1})
			w.check(w.d.DenyXDPToPort(end))

			w.name = tunnel.named() + ", not wired"
			w.change(port, func(r *Port) { r.Peer = other })
			pass("peer gone", p.bytes(), 0)
			w.check(w.d.DenyXDPToPort(port))
			w.check(w.d.Forget(port))
		}
	})
}

// The device that takes what comes out of a tunnel is not where frames go into it.
func TestLineCardLeavesWhatGoesIntoATunnel(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		p := packet{}
		came := p.bytes()
		card := func() outcome {
			w.Helper()
			opts := ebpf.RunOptions{Data: came, DataOut: make([]byte, len(came)+256),
				Context: &xdpMD{DataEnd: uint32(len(came)), IngressIfindex: uint32(w.a)}}
			verdict, err := w.d.programs.Linecard.Run(&opts)
			w.check(err)
			return outcome{verdict, opts.DataOut, w.takeAll()}
		}
		l := w.line(2)
		w.name = "to a port that takes it"
		w.check(w.d.AllowXDPToPort(l.end, w.b))
		w.expect(card(), xdpRedirect, p.after(macB, mac(3), 2), l.passed(2))
		for _, tunnel := range sorts {
			far := w.tunnelled(l.out[1], tunnel)
			w.check(w.d.AllowXDPToPort(far, w.b))
			w.name = tunnel.named() + ", past routers"
			w.expect(card(), xdpPass, came, map[string]uint64{})
			w.forgetTunnels()
		}
		for _, tunnel := range sorts {
			far := w.tunnelled(w.a, tunnel)
			w.check(w.d.AllowXDPToPort(far, w.b))
			w.name = tunnel.named() + ", at once"
			w.expect(card(), xdpPass, came, map[string]uint64{})
			w.forgetTunnels()
		}
	})
}
