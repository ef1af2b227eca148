package datapath

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Frames that have got labels, or lost them, as the kernel takes them from the programs, by all ways out of a walk.
func TestLiveLabels(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			p := packet{v6: v6}
			l := w.line(4)
			w.lsp(l, true)
			ways := func(what string, last int, sent, want []byte) {
				w.Helper()
				from, to := l.out[last], l.in[last+1]
				w.leg(to, func(g *objectLeg) { *g = objectLeg{} })
				at := arrival{to, unix.PACKET_HOST, want}
				w.name = fmt.Sprintf("%s, IPv6 %v, to a node", what, v6)
				w.expectReceived(sent, at)
				w.name = fmt.Sprintf("%s, IPv6 %v, by a queue", what, v6)
				w.change(from, func(p *Port) { p.Mode = Queue })
				w.expectReceived(sent, at)
				w.name = fmt.Sprintf("%s, IPv6 %v, out of the machine", what, v6)
				w.change(from, func(p *Port) { p.Mode = Peer })
				w.change(to, func(p *Port) { p.External = true })
				w.expectReceived(sent, at)
				w.name = fmt.Sprintf("%s, IPv6 %v, by a bridge", what, v6)
				w.change(to, func(p *Port) { p.External = false })
				w.change(from, func(p *Port) { p.Mode = Kernel })
				bridge := fmt.Sprintf("br%d", to)
				w.ip("link add %s up type bridge mcast_snooping 0", bridge)
				for _, port := range []int{from, to} {
					w.ip("link set %s master %s", device(w, port), bridge)
				}
				w.expectReceived(sent, at)
				w.ip("link del %s", bridge)
				w.change(from, func(p *Port) { p.Mode = Peer })
			}
			// A label that came gives place to none: the packet leaves the third router as IP.
			ways("off", 2, labelled(p.bytes(), entry{50, 20, 0}, entry{60, 20, 0}), func() []byte {
				for i, label := range []uint32{50, 60, 70} {
					n := l.ahead(i, Label{Label: 70})
					if i != 1 {
						n.Push = nil
					}
					w.label(i, label, n.uniform())
				}
				q := p
				q.ttl = 17
				return q.behind(0, mac(6), mac(5))
			}())
			ways("swapped", 1, labelled(p.bytes(), entry{0x12345, 20, 5}), func() []byte {
				w.label(0, 0x12345, l.ahead(0, Label{Label: 17}))
				w.label(1, 17, l.ahead(1, Label{Label: 18}))
				return labelled(p.behind(0, mac(4), mac(3)), entry{18, 18, 0})
			}())
			ways("on", 0, p.bytes(), labelled(p.behind(1, mac(2), mac(1)), entry{101, 63, 0}))
			w.ftn(l, 0, l.ahead(0, Label{Label: 16}, Label{Label: 17}, Label{Label: 18}))
			ways("three on", 0, p.bytes(), labelled(p.behind(1, mac(2), mac(1)), entry{18, 255, 0},
				entry{17, 255, 0}, entry{16, 255, 0}))
		}
	})
}
