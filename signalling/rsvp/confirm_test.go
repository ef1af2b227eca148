package rsvp

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// confirmations gives the ResvConf messages that a router wants to send.
func (n *node) confirmations(t *testing.T) (all []Send) {
	t.Helper()
	for _, s := range n.Take().Send {
		if m, err := message.Decode(s.Message); err != nil {
			t.Fatal(err)
		} else if m.Type == message.ResvConf {
			all = append(all, s)
		}
	}
	return all
}

// A receiver that asks for it hears that its reservation is in place: from the ingress, by way of the routers between.
func TestReceiversAreToldThatTheirReservationIsInPlace(t *testing.T) {
	w := chain(t, 4, 1000)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
	w.run(testTick)
	receiver := netip.MustParseAddr("192.0.2.99")
	// Router 3 asks for less, and to be told.
	resv := func(rate float32) []byte {
		t.Helper()
		s := w.routers[3].lsps[k]
		spec := s.resv.flowspec
		spec.Bucket.Rate = rate
		b, err := message.Message{Type: message.Resv, TTL: ttl, Objects: []message.Object{k.Session, s.hopUp(),
			message.TimeValues{Milliseconds: 30000}, message.ResvConfirm{Receiver: receiver},
			s.resv.style, spec, k.filter(), s.resv.in}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	index := func(at, to int) int {
		i := slices.IndexFunc(w.routers[at].config.Interfaces, func(i Interface) bool {
			return i.Prefix.Contains(w.address(to, at))
		})
		return w.routers[at].config.Interfaces[i].Index
	}
	asked := resv(300)
	w.routers[2].Receive(w.now, arrived(index(2, 3), w.address(2, 3), asked))
	passed := w.routers[2].Take().Send
	at := slices.IndexFunc(passed, func(s Send) bool {
		m, err := message.Decode(s.Message)
		c, has := message.Of[message.ResvConfirm](m)
		return err == nil && m.Type == message.Resv && has && c.Receiver == receiver
	})
	if at < 0 {
		t.Fatalf("router 2 passes %+v on, without the request", passed)
	}
	w.routers[1].Receive(w.now, arrived(index(1, 2), w.address(1, 2), passed[at].Message))
	passed = w.routers[1].Take().Send
	if len(passed) != 1 {
		t.Fatalf("router 1 sends %+v", passed)
	}
	w.routers[0].Receive(w.now, arrived(index(0, 1), w.address(0, 1), passed[0].Message))
	confirmed := w.routers[0].confirmations(t)
	for i := range 2 {
		if len(confirmed) != 1 || confirmed[0].Dest != receiver || !confirmed[0].RouterAlert {
			t.Fatalf("router %d confirms %+v", i, confirmed)
		}
		w.routers[i+1].Receive(w.now, arrived(index(i+1, i), confirmed[0].Source, confirmed[0].Message))
		confirmed = w.routers[i+1].confirmations(t)
	}
	if len(confirmed) != 1 || confirmed[0].Next != w.address(2, 3) {
		t.Fatalf("router 2 confirms %+v", confirmed)
	}
	m, err := message.Decode(confirmed[0].Message)
	e, _ := message.Of[message.ErrorSpec](m)
	if err != nil || e.Node != idOf(0) || e.Code != message.Confirmation {
		t.Errorf("the receiver is told %+v: %v", m, err)
	}
	// The same again is in place: router 2 knows. What is refused is not confirmed.
	w.routers[2].Receive(w.now, arrived(index(2, 3), w.address(2, 3), asked))
	if again := w.routers[2].confirmations(t); len(again) != 1 || again[0].Next != w.address(2, 3) {
		t.Errorf("the same again: router 2 confirms %+v", again)
	}
	w.routers[2].Receive(w.now, arrived(index(2, 3), w.address(2, 3), resv(3000)))
	if refused := w.routers[2].confirmations(t); len(refused) > 0 {
		t.Errorf("what is refused is confirmed: %+v", refused)
	}
}
