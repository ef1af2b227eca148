package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkEarly gives the line card's own time for a frame of an LSP past a router: where all frames are alike; where
// it is told apart as one with a reservation; and for one of best effort that is dropped, as there is no time for it.
// "nothing" is what the measurement itself costs.
func BenchmarkEarly(b *testing.B) {
	for _, c := range []struct {
		name    string
		share   float64 // of best effort; 0: all are alike
		class   uint8
		nothing bool
		want    uint32
	}{
		{name: "alike", class: 5, want: xdpRedirect},
		{name: "reserved", share: 0.5, class: 5, want: xdpRedirect},
		{name: "dropped", share: 0.5, want: xdpDrop},
		{name: "nothing", nothing: true, class: 5},
	} {
		b.Run(c.name, func(b *testing.B) {
			inWorld(b, func(w *world) {
				l := w.line(1)
				w.space(l)
				n := l.ahead(0, Label{Label: 101})
				n.KeepClass, n.Reserved = true, true
				w.label(0, 100, n)
				w.check(w.d.maps.Devices.Put(uint32(l.end), uint32(w.b)))
				w.ip("link set pa up")
				w.check(w.d.AttachPortLineCard(w.a, true))
				defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
				w.check(w.d.SetBestEffort(c.share))
				defer func() { w.check(w.d.SetBestEffort(0)) }()
				if c.want == xdpDrop {
					w.spend()
				}
				frame := labelled(packet{}.bytes(), entry{100, 64, c.class})
				program := w.d.programs.Linecard
				if c.nothing {
					program = nil
				}
				program = again(w.bench, true, frame[:18], program)
				defer func() { _ = program.Close() }()
				opts := ebpf.RunOptions{Data: frame, Context: &xdpMD{DataEnd: uint32(len(frame)),
					IngressIfindex: uint32(w.a)}, Repeat: uint32(b.N)}
				b.ResetTimer()
				verdict, err := program.Run(&opts)
				w.check(err)
				b.StopTimer()
				if verdict != c.want {
					b.Errorf("verdict %d, want %d", verdict, c.want)
				}
			})
		})
	}
}
