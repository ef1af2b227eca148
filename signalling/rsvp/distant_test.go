package rsvp

import (
	"slices"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// What is for a neighbour and was forwarded changes nothing; a Path may come by any TTL. Where neighbours send by TTL
// 255, nothing else is taken from them, whatever a message says of itself.
func TestWhatComesFromBeyondTheLinkChangesNothing(t *testing.T) {
	for _, gtsm := range []bool{false, true} {
		w := chain(t, 3, 1000)
		for i, n := range w.routers {
			for j := range n.config.Interfaces {
				n.config.Interfaces[j].GTSM = gtsm
			}
			w.start(i)
		}
		k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
		w.run(testTick)
		w.check()
		r := w.routers[1]
		m := message.Message{Type: message.ResvTear, TTL: 200, Objects: []message.Object{k.Session,
			message.Hop{Addr: w.address(1, 2), Handle: 2}, message.FixedFilter,
			message.Flowspec{Service: message.ControlledLoad}, k.filter()}}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			ttl   uint8
			taken bool
		}{{199, false}, {200, !gtsm}, {254, !gtsm}, {255, true}} {
			before := r.Counters.Distant
			r.Receive(w.now, Packet{Interface: 2, Source: w.address(1, 2), TTL: c.ttl, Message: b})
			w.flush(1)
			there, counted := r.lsps[k].resv != nil, r.Counters.Distant > before
			if there == c.taken || counted == c.taken {
				t.Errorf("GTSM %t, TTL %d: reserved %t, counted %t", gtsm, c.ttl, there, counted)
			}
			w.run(2 * testRefresh)
			w.check()
		}
		path := w.sentTo(1, w.request(2, 1, 100, 0, 1, 2))
		b, err = path.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r.Receive(w.now, Packet{Interface: 1, Source: idOf(0), TTL: 9, Message: b})
		if len(r.lsps) != 2 {
			t.Errorf("GTSM %t: a Path was not taken", gtsm)
		}
	}
}

// By which TTL a router sends what, as its link is.
func TestMessagesAreSentByTheTTLThatTheNeighbourWants(t *testing.T) {
	for _, gtsm := range []bool{false, true} {
		w := chain(t, 3, 1000)
		w.greet(testHello)
		w.reduce()
		for i, n := range w.routers {
			for j := range n.config.Interfaces {
				n.config.Interfaces[j].GTSM = gtsm
			}
			w.start(i)
		}
		have := map[message.Type][]uint8{}
		w.sent = func(_ end, b []byte) {
			if kind := message.Type(b[1]); !slices.Contains(have[kind], b[4]) {
				have[kind] = append(have[kind], b[4])
			}
		}
		w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
		w.run(5 * testRefresh)
		one := uint8(1)
		if gtsm {
			one = 255
		}
		for kind, want := range map[message.Type][]uint8{message.Path: {254, 253}, message.Resv: {255},
			message.Hello: {one}, message.Ack: {one}, message.Srefresh: {one}} {
			if !slices.Equal(have[kind], want) {
				t.Errorf("GTSM %t: %s sent by TTL %d, want %d", gtsm, kind, have[kind], want)
			}
		}
	}
}
