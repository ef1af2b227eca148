package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// TestForgedAndReplayedMessagesChangeNothing records what a router was sent, and sends it again, as it was and changed.
func TestForgedAndReplayedMessagesChangeNothing(t *testing.T) {
	w := chain(t, 3, 1000)
	key := message.Key{ID: 5, Secret: []byte("secret")}
	w.sign(key)
	var recorded [][]byte
	w.sent = func(to end, b []byte) {
		if to == (end{1, 1}) {
			recorded = append(recorded, b)
		}
	}
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(testTick)
	w.check()
	tear, err := (message.Message{Type: message.PathTear, TTL: 9, Objects: []message.Object{k.Session,
		message.Hop{Addr: w.address(1, 0)}, k.template()}}).Sign(message.Key{ID: 5, Secret: []byte("guess")},
		1<<60, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := w.routers[1]
	r.Receive(w.now, arrived(1, w.address(1, 0), tear))
	if r.Counters.Forged != 1 {
		t.Errorf("forged: %+v", r.Counters)
	}
	w.removeLSP(0, k)
	w.run(testTick)
	if len(recorded) < 2 {
		t.Fatalf("%d messages were recorded", len(recorded))
	}
	for _, b := range recorded {
		r.Receive(w.now, arrived(1, w.address(1, 0), b))
	}
	if got := r.Counters.Replayed; got != uint64(len(recorded)) {
		t.Errorf("%d of %d replayed messages were refused", got, len(recorded))
	}
	if len(r.lsps) > 0 {
		t.Error("a replayed Path set an LSP up")
	}
	plain, err := message.Decode(recorded[0])
	if err != nil {
		t.Fatal(err)
	}
	plain.Objects = plain.Objects[1:]
	b, err := plain.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.Receive(w.now, arrived(1, w.address(1, 0), b))
	if r.Counters.Forged != 2 || len(r.lsps) > 0 {
		t.Errorf("unsigned: %+v", r.Counters)
	}
}

func TestSequenceNumbersAreAcceptedOnceWithinTheWindow(t *testing.T) {
	var w window
	for _, c := range []struct {
		n    uint64
		want bool
	}{{100, true}, {100, false}, {103, true}, {101, true}, {101, false}, {102, true}, {500, true}, {437, true},
		{436, false}, {437, false}, {499, true}, {1 << 40, true}, {500, false}} {
		if got := w.fresh(c.n); got != c.want {
			t.Errorf("%d: %t", c.n, got)
		}
	}
}
