package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// The ingress never hears that an LSP is up which a router on its way, or at its end, has no entry for.
func TestALabelThatCannotBeInstalledIsRefused(t *testing.T) {
	for _, full := range []int{1, 2, 3} {
		w := chain(t, 4, 1000)
		w.routers[full].full = true
		k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
		w.run(testTick)
		e, failed := w.routers[0].told(Failed, k)
		if !failed || e.Error.Code != message.RoutingProblem || e.Error.Value != message.LabelAllocation {
			t.Errorf("router %d is full: the ingress is told %t: %+v", full, failed, e)
		}
		if e.Said != "it is full" {
			t.Errorf("router %d is full: the ingress is told %q", full, e.Said)
		}
		if _, up := w.routers[0].told(Up, k); up {
			t.Errorf("router %d is full: the ingress is told that the LSP is up", full)
		}
		if n := w.routers[full]; len(n.lsps)+len(n.labels.used) > 0 {
			t.Errorf("router %d is full, and keeps %d LSPs with %d labels", full, len(n.lsps),
				len(n.labels.used))
		}
		w.routers[full].full = false
		w.run(10 * testRefresh)
		if _, up := w.routers[0].told(Up, k); !up {
			t.Errorf("router %d has room again, and the LSP is not up", full)
		}
		w.check()
	}
}

// What shares its reservation goes on.
func TestALabelThatCannotBeInstalledLeavesTheLSPThatItWasToReplace(t *testing.T) {
	w := chain(t, 4, 1000)
	old := w.request(1, 1, 400, 0, 1, 2, 3)
	old.Attribute.Flags = message.SharedStyle
	w.mustAdd(0, old)
	w.run(testTick)
	w.routers[1].full = true
	larger := w.request(1, 2, 500, 0, 1, 2, 3)
	larger.Attribute.Flags, larger.Replaces = message.SharedStyle, 1
	w.mustAdd(0, larger)
	w.run(testTick)
	if _, failed := w.routers[0].told(Failed, larger.Key); !failed {
		t.Error("the ingress is not told")
	}
	w.removeLSP(0, larger.Key)
	w.run(10 * testRefresh)
	if _, down := w.routers[0].told(Down, old.Key); down {
		t.Error("the LSP that was up is down")
	}
	w.check()
}
