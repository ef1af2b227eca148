package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkSwap gives port_ingress's own time for a frame that passes routers which each swap its label: to be compared
// with BenchmarkWalk.
func BenchmarkSwap(b *testing.B) {
	for _, hops := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("routers=%d", hops), func(b *testing.B) {
			inWorld(b, func(w *world) {
				l := w.line(hops)
				w.space(l)
				for i := range hops {
					w.label(i, uint32(100+i), l.ahead(i, Label{Label: uint32(101 + i)}))
				}
				frame := labelled(packet{}.bytes(), entry{100, 64, 0})
				program := again(w.bench, false, frame[:18], w.d.programs.PortIngress)
				defer func() { _ = program.Close() }()
				opts := ebpf.RunOptions{Data: frame, Context: &skbuff{Ifindex: uint32(w.a)},
					Repeat: uint32(b.N)}
				b.ResetTimer()
				_, err := program.Run(&opts)
				w.check(err)
				b.StopTimer()
				if n := w.take()[fmt.Sprintf("walked out %d", l.out[hops-1])]; n != uint64(b.N) {
					b.Errorf("%d of %d frames passed", n, b.N)
				}
			})
		})
	}
}

// BenchmarkLSP gives port_ingress's own time for a frame that goes by an LSP through four routers: with a reservation,
// which measures it, and without; by its route, or by the last of so many rules.
func BenchmarkLSP(b *testing.B) {
	for _, c := range []struct {
		reserved bool
		rules    int
	}{{false, 0}, {true, 0}, {false, 1}, {false, 16}, {false, 64}} {
		b.Run(fmt.Sprintf("reserved=%v/rules=%d", c.reserved, c.rules), func(b *testing.B) {
			inWorld(b, func(w *world) {
				l := w.line(4)
				if c.reserved {
					w.reserve(l, Reservation{Rate: 1 << 40, Burst: 1 << 40})
				} else {
					w.lsp(l, true)
				}
				if c.rules > 0 {
					rules := make([]LabelRule, c.rules)
					other := Match{DSCP: -1, Protocol: 17, AnyPort: PortRange{65000, 65000}}
					for i := range rules {
						rules[i] = LabelRule{7, other}
					}
					rules[c.rules-1].AnyPort = PortRange{}
					w.check(w.d.SetLabelRules(1, rules))
					w.leg(l.in[0], func(g *objectLeg) { g.Flags |= legLabelRules })
				}
				frame := packet{}.bytes()
				program := again(w.bench, false, frame[:34], w.d.programs.PortIngress)
				defer func() { _ = program.Close() }()
				opts := ebpf.RunOptions{Data: frame, Context: &skbuff{Ifindex: uint32(w.a)},
					Repeat: uint32(b.N)}
				b.ResetTimer()
				_, err := program.Run(&opts)
				w.check(err)
				b.StopTimer()
				if n := w.take()[fmt.Sprintf("walked out %d", l.out[3])]; n != uint64(b.N) {
					b.Errorf("%d of %d frames passed", n, b.N)
				}
				if n := w.measured().Frames; c.reserved && n != uint64(b.N) {
					b.Errorf("%d of %d frames were within the reservation", n, b.N)
				}
			})
		})
	}
}
