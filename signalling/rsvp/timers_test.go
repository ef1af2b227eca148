package rsvp

import (
	"testing"
	"time"
)

// Next is exact: a tick before it does nothing, and the tick at it does something.
func TestNextIsWhenSomethingIsDue(t *testing.T) {
	w := chain(t, 3, 1000)
	for i, n := range w.routers {
		if at, ok := n.Next(); ok {
			t.Errorf("router %d waits until %s without an LSP", i, at)
		}
	}
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(testTick)
	for i, n := range w.routers {
		at, ok := n.Next()
		if !ok || at <= w.now {
			t.Fatalf("router %d, at %s, is due at %s: %t", i, w.now, at, ok)
		}
		n.Tick(at - 1)
		if out := n.Take(); len(out.Send) > 0 {
			t.Errorf("router %d sends before the time", i)
		}
		n.Tick(at)
		if out := n.Take(); len(out.Send) != 1 {
			t.Errorf("router %d sends %d messages at the time", i, len(out.Send))
		}
		if later, _ := n.Next(); later < at+testRefresh/2 && i != 1 { // router 1 refreshes both ways
			t.Errorf("router %d is due again after %s", i, later-at)
		}
	}
}

// A router's time goes on where a clock has jumped back, and Next is in the time of its owner.
func TestNextIsInTheTimeOfAClockThatJumpedBack(t *testing.T) {
	w := chain(t, 2, 1000)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1))
	w.run(testTick)
	n := w.routers[0]
	n.Tick(w.now)
	before, _ := n.Next()
	n.Tick(w.now - time.Hour)
	if after, _ := n.Next(); before-after != time.Hour {
		t.Errorf("due at %s, and at %s by a clock that is an hour behind", before, after)
	}
}
