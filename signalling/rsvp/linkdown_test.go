package rsvp

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Both ends know at once, not when state expires; what is reserved is free, and the error names the link.
func TestALinkThatIsDownTearsItsLSPsDownTowardsBothEnds(t *testing.T) {
	w := chain(t, 5, 1000)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3, 4))
	other := w.mustAdd(0, w.request(2, 1, 100, 0, 1, 2))
	w.run(testTick)
	w.check()
	for _, e := range w.links[2] { // of routers 2 and 3
		w.setLink(e, false)
	}
	if free := w.routers[2].Unreserved(2); free != [priorities]uint64{} {
		t.Errorf("a link that is down has %v unreserved", free)
	}
	w.run(testTick / 2)
	e, failed := w.routers[0].told(Failed, k)
	if want := problem(message.NoRoute); !failed || e.Error.Code != want.Code || e.Error.Value != want.Value ||
		e.Error.Node != w.address(3, 2) {
		t.Errorf("the ingress is told %t: %+v", failed, e.Error)
	}
	for _, i := range []int{0, 4} {
		if _, down := w.routers[i].told(Down, k); !down {
			t.Errorf("router %d is not told that the LSP is down", i)
		}
	}
	for i, n := range w.routers {
		if _, there := n.installed[k]; there || i > 1 && n.lsps[k] != nil {
			t.Errorf("router %d has labels: %t, or state", i, there)
		}
	}
	if w.free(0, 1, 7) != 900 || w.free(3, 2, 7) != 1000 {
		t.Errorf("unreserved: %d and %d, want 900 and 1000", w.free(0, 1, 7), w.free(3, 2, 7))
	}
	if _, there := w.routers[0].installed[other]; !there {
		t.Error("an LSP that does not go by the link is gone")
	}
	w.check()
	for _, e := range w.links[2] {
		w.setLink(e, true)
	}
	w.run(2 * testRefresh)
	if _, there := w.routers[0].installed[k]; !there {
		t.Error("the LSP did not come back with the link")
	}
	w.check()
}

// The first link of an LSP comes back: the ingress does not wait for its refresh.
func TestTheIngressTriesAtOnceWhenItsLinkIsUp(t *testing.T) {
	w := chain(t, 3, 1000)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(testTick)
	for _, up := range []bool{false, true} {
		for _, e := range w.links[0] {
			w.setLink(e, up)
		}
		w.run(testTick / 2)
		if _, there := w.routers[0].installed[k]; there != up {
			t.Errorf("link up: %t, LSP up: %t", up, there)
		}
	}
	w.check()
}

// An LSP that goes as packets are routed takes the way that is left.
func TestAnLSPWithoutARouteGoesRoundALinkThatIsDown(t *testing.T) {
	w := newWorld(t, 1, 3, 1000, [2]int{0, 1}, [2]int{0, 2}, [2]int{2, 1})
	by := 1
	w.routers[0].Router.config.Route = func(netip.Addr) (int, netip.Addr, bool) {
		return map[int]int{1: 1, 2: 2}[by], w.address(0, by), true
	}
	w.routers[2].Router.config.Route = func(netip.Addr) (int, netip.Addr, bool) { return 2, w.address(2, 1), true }
	q := w.request(1, 1, 400, 0, 1)
	q.Route = nil
	k := w.mustAdd(0, q)
	w.run(testTick)
	w.check()
	by = 2
	for _, e := range w.links[0] {
		w.setLink(e, false)
	}
	w.run(testTick / 2)
	if e, there := w.routers[0].installed[k]; !there || e.Interface != 2 {
		t.Errorf("the LSP goes by interface %d: %t", e.Interface, there)
	}
	w.check()
	w.run(settled)
	w.check()
}

// What no neighbour can answer is no neighbour's fault.
func TestASilentNeighbourBehindALinkThatIsDownIsNotLost(t *testing.T) {
	w := chain(t, 2, 1000)
	w.greet(testTick)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1))
	w.run(3 * testTick)
	for _, e := range w.links[0] {
		w.setLink(e, false)
	}
	w.run(10 * testTick)
	for _, e := range w.routers[0].events {
		if e.Kind == Lost {
			t.Errorf("told %+v", e)
		}
	}
	w.check()
}

// What was on its way when the link went down makes no state that the next teardown would miss.
func TestAMessageByALinkThatIsDownIsNotTaken(t *testing.T) {
	w := chain(t, 3, 1000)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2)) // the Path is on its way
	w.setLink(w.links[0][1], false)
	w.run(testTick)
	if n := len(w.routers[1].lsps); n > 0 {
		t.Errorf("%d LSPs by a link that is down", n)
	}
}
