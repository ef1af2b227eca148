package datapath

import "testing"

// Where a slice has reserved of the machine's card, its packets leave by the uplink's device, in its class: also those
// that the line card would send by itself. Where none has any more, all is as before.
func TestPacketsWaitAtTheUplinkInTheirSlicesClass(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		for _, tunnel := range sorts {
			w.name = tunnel.named()
			tunnel.Key = 0xabc<<12 | 5
			port := w.tunnelled(w.a, tunnel)
			for _, queued := range []bool{true, false, true, false} {
				w.check(w.d.QueueUplink(queued))
				want := uint32(0)
				if queued {
					want = FirstCardClass + 0xabc
				}
				if have := w.priority(w.a, packet{}.bytes()); have != want {
					w.Errorf("%s, waiting %v: class %x, want %x", w.name, queued, have, want)
				}
			}
			w.takeAll()
			w.check(w.d.Forget(port))

			relay, _ := w.relay(tunnel)
			came := relay(packet{})
			w.check(w.d.QueueUplink(true))
			w.expect(w.card(came), xdpPass, came, map[string]uint64{})
			w.check(w.d.QueueUplink(false))
			if have := w.card(came); have.Verdict != xdpTX {
				w.Errorf("%s: verdict %d", w.name, have.Verdict)
			}
			w.forgetTunnels()
		}
	})
}

// An uplink that is another one has no qdisc yet.
func TestAnUplinkThatIsGoneKeepsNobodyWaiting(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		is := func(want bool) {
			t.Helper()
			if have, err := w.d.IsUplinkQueued(); have != want || err != nil {
				t.Errorf("packets wait: %v, want %v (%v)", have, want, err)
			}
		}
		w.check(w.d.QueueUplink(true))
		w.check(w.d.SetUplink(w.b)) // as it is
		is(true)
		w.check(w.d.SetUplink(0))
		is(false)
		w.check(w.d.QueueUplink(true))
		is(false)
	})
}
