package rsvp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// TestHellosBringTheStateOfARestartedRouterBack compares with refreshes alone, which take longer.
func TestHellosBringTheStateOfARestartedRouterBack(t *testing.T) {
	for _, c := range []struct {
		hello time.Duration
		back  bool
	}{{time.Second, true}, {0, false}} {
		w := chain(t, 4, 1000)
		w.greet(c.hello)
		w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
		for range 3 { // until refreshes are more than the time below away
			w.run(testTick)
		}
		w.start(2)
		for i := range w.routers {
			for _, s := range w.routers[i].lsps {
				s.refresh = w.now + testRefresh
				if s.resv != nil {
					s.resv.refresh = w.now + testRefresh
				}
				w.routers[i].schedule(s)
			}
		}
		w.run(3 * testTick)
		if back := len(w.routers[2].Entries()) == 1; back != c.back {
			t.Errorf("Hello %s: after three seconds, back: %t", c.hello, back)
		}
		w.run(4 * testRefresh)
		w.check()
	}
}

func TestASilentNeighbourTakesItsLSPsDown(t *testing.T) {
	w := chain(t, 3, 1000)
	w.greet(time.Second)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(3 * testTick)
	w.check()
	w.loss = 1
	w.run(5 * testTick)
	n := w.routers[0]
	if !slices.ContainsFunc(n.events, func(e Event) bool {
		return e.Kind == Lost && e.Error.Node == w.address(0,
			1)
	}) {
		t.Error("the neighbour is not told lost")
	}
	if _, down := n.told(Down, k); !down || len(n.Entries()) > 0 {
		t.Error("the LSP is still up")
	}
	w.loss = 0
	w.run(4 * testRefresh)
	w.check()
	if len(n.Entries()) != 1 {
		t.Error("the LSP did not come back")
	}
}

// A router of another make may ask by its identifier, once for all links (RFC 4558). It is answered by ours.
func TestHellosBetweenIdentifiersAreAnswered(t *testing.T) {
	w := chain(t, 2, 1000)
	w.greet(time.Second)
	r, other := w.routers[0], idOf(1)
	ask := func(to netip.Addr, h message.HelloObject) []Send {
		t.Helper()
		b, err := message.Message{Type: message.Hello, TTL: 1, Objects: []message.Object{h}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		p := arrived(1, other, b)
		p.Dest = to
		r.Receive(w.now, p)
		return r.Take().Send
	}
	request := message.HelloObject{Source: 77}
	answers := ask(idOf(0), request)
	if len(answers) != 1 || answers[0].Source != idOf(0) || answers[0].Dest != other || answers[0].RouterAlert {
		t.Fatalf("answered by %+v", answers)
	}
	m, err := message.Decode(answers[0].Message)
	h, _ := message.Of[message.HelloObject](m)
	if err != nil || !h.Ack || h.Destination != 77 || h.Source != r.config.Instance {
		t.Errorf("answered %+v: %v", m, err)
	}
	if answers := ask(idOf(0), message.HelloObject{Ack: true, Source: 77}); len(answers) > 0 {
		t.Errorf("an answer is answered by %+v", answers)
	}
	foreign := r.Counters.Foreign
	if answers := ask(w.address(0, 1), request); len(answers) > 0 || r.Counters.Foreign != foreign+1 {
		t.Errorf("from afar to an interface, answered by %+v", answers)
	}
	if len(r.neighbours) > 0 {
		t.Errorf("remembered: %+v", r.neighbours)
	}
}
