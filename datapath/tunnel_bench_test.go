package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkTunnelCard gives the line card's own time for a packet that comes out of a tunnel, passes routers, and
// goes into the next one, without what the kernel does then. "nothing" is what the measurement itself costs.
func BenchmarkTunnelCard(b *testing.B) {
	for _, tunnel := range sorts {
		for _, routers := range []int{-1, 0, 1, 4} {
			name := fmt.Sprintf("%v/IPv6=%v/routers=%d", tunnel.Kind, tunnel.Local.Is6(), routers)
			if routers < 0 {
				name = fmt.Sprintf("%v/IPv6=%v/nothing", tunnel.Kind, tunnel.Local.Is6())
			}
			b.Run(name, func(b *testing.B) { benchmarkTunnelCard(b, tunnel, routers) })
		}
	}
}

func benchmarkTunnelCard(b *testing.B, in Tunnel, routers int) {
	b.Helper()
	inRoutedWorld(b, func(w *world) {
		w.asked(never)
		out := in
		in.Key, out.Key, out.Peer = 100, 200, third4
		if out.Local.Is6() {
			out.Peer = third6
		}
		p := packet{}
		if routers > 0 {
			l := w.line(routers)
			w.tunnelled(l.in[0], in)
			w.tunnelled(l.out[routers-1], out)
		} else {
			w.tunnelled(w.tunnelled(w.a, in), out)
		}
		frame := in.turned().outer(p.bytes(), around{to: macHere, from: macThere})
		program := w.d.programs.UnderlayLinecard
		if routers < 0 {
			program = nil
		}
		const changed = 14 + 20 // of the inner frame
		program = again(w.bench, true, frame[:len(frame)-len(p.bytes())+changed], program)
		defer func() { _ = program.Close() }()
		opts := ebpf.RunOptions{Data: frame, Context: &xdpMD{DataEnd: uint32(len(frame)),
			IngressIfindex: uint32(w.a)}, Repeat: uint32(b.N)}
		b.ResetTimer()
		verdict, err := program.Run(&opts)
		w.check(err)
		b.StopTimer()
		if routers >= 0 && verdict != xdpTX {
			b.Errorf("verdict %d", verdict)
		}
	})
}
