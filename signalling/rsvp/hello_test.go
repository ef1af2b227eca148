package rsvp

import (
	"slices"
	"testing"
	"time"
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
