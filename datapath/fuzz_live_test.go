package datapath

import (
	"slices"
	"testing"
	"time"
)

// FuzzSlice sends bytes into any port of a slice: what comes in by the NIC meets the line card in XDP first, and the
// programs of tc where that leaves it alone; what nodes send meets these. Nothing comes to a port of the other slice,
// which has the same addresses, and nothing comes twice.
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
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.change(ours.end, func(p *Port) { p.External = true })
		w.check(w.d.AllowXDPToPort(ours.end, ours.end))
		foreign := append([]int{theirs.end}, append(theirs.in, theirs.out...)...)
		ports := append([]int{w.a, ours.end}, append(ours.in, ours.out...)...)
		f.Fuzz(func(t *testing.T, frame []byte, from uint8) {
			b := *w.bench
			b.TB = t
			w := &world{bench: &b, stations: w.stations}
			port := ports[int(from)%len(ports)]
			if w.say(port, frame) != nil {
				return // no interface sends that
			}
			came := w.receiveAll()
			w.noneTo(foreign, came)
			if len(came) < 2 {
				return
			}
			// One may be late: of the input before, which may be the same frame at another port. So once
			// more, when all is quiet.
			w.noneTo(foreign, w.rest())
			w.check(w.say(port, frame))
			if came = w.rest(); len(came) > 1 {
				t.Errorf("sent at port %d: %x\ncame: %+v", port, frame, came)
			}
			w.noneTo(foreign, came)
		})
		w.noneTo(foreign, w.rest())
	})
}

func (w *world) noneTo(foreign []int, came []arrival) {
	w.Helper()
	for _, h := range came {
		if slices.Contains(foreign, h.Port) {
			w.Errorf("a frame came to port %d of another slice: %x", h.Port, h.Frame)
		}
	}
}

// rest takes what comes to stations until nothing has come for a while, or it takes too long.
func (w *world) rest() []arrival {
	var all []arrival
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline) &&
		w.listen(100*time.Millisecond); {
		all = append(all, w.receiveAll()...)
	}
	return all
}
