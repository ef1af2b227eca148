package datapath

import (
	"slices"
	"testing"
)

// FuzzSlice sends bytes into any port of a slice: what comes in by the NIC meets the line card in XDP first, and the programs of tc where that
// leaves it alone; what nodes send meets these. Nothing comes to a port of the other slice, which has the same addresses, and nothing
// comes twice.
func FuzzSlice(f *testing.F) {
	for _, c := range slices.Concat(headerPunts, statePunts) {
		for port := range uint8(3) {
			f.Add(c.packet.bytes(), port)
		}
	}
	inLiveWorld(f, func(w *world) {
		theirs := w.line(3)
		w.a = w.port(macA)
		ours := w.line(3)
		w.change(w.a, func(p *Port) { p.External = true })
		w.check(w.d.AttachXDP(w.a, true))
		defer func() { w.check(w.d.DetachXDP(w.a)) }()
		w.change(ours.end, func(p *Port) { p.External = true })
		w.check(w.d.TakeXDP(ours.end, ours.end))
		foreign := append([]int{theirs.end}, append(theirs.in, theirs.out...)...)
		ports := append([]int{w.a, ours.end}, append(ours.in, ours.out...)...)
		f.Fuzz(func(t *testing.T, frame []byte, from uint8) {
			port := ports[int(from)%len(ports)]
			if w.say(port, frame) != nil {
				return // no interface sends that
			}
			came := w.hear()
			if len(came) > 1 {
				t.Errorf("sent at port %d: %x\ncame: %+v", port, frame, came)
			}
			for _, h := range came {
				if slices.Contains(foreign, h.Port) {
					t.Errorf("sent at port %d: %x\ncame to port %d of another slice: %x", port, frame, h.Port, h.Frame)
				}
			}
		})
	})
}
