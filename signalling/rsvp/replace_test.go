package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// shared is a request whose LSP can be replaced.
func (w *world) shared(tunnel, number uint16, bandwidth uint64, way ...int) Request {
	q := w.request(tunnel, number, bandwidth, way...)
	q.Attribute.Flags = message.SharedStyle
	return q
}

// stayedUp wants an LSP that is up, and never was down.
func (w *world) stayedUp(k Key) {
	w.t.Helper()
	if _, down := w.routers[0].told(Down, k); down {
		w.t.Errorf("%s was down", k)
	}
	if _, up := w.routers[0].installed[k]; !up {
		w.t.Errorf("%s is not up", k)
	}
}

// An increase that a router on the way refuses leaves the old LSP as it was, at each router; it is tried again until
// its owner gives it up, and comes when there is room.
func TestARefusedIncreaseLeavesTheOldReservation(t *testing.T) {
	for _, givenUp := range []bool{true, false} {
		w := chain(t, 4, 1000)
		old := w.mustAdd(0, w.shared(1, 1, 400, 0, 1, 2, 3))
		other := w.mustAdd(2, w.request(2, 1, 500, 2, 3)) // the last link has 100 left
		w.run(testTick)
		w.check()
		before := w.snapshot()
		larger := w.shared(1, 2, 700, 0, 1, 2, 3)
		larger.Replaces = old.LSP
		w.mustAdd(0, larger)
		w.run(5 * testRefresh)
		if e, failed := w.routers[0].told(Failed, larger.Key); !failed ||
			e.Error.Code != message.AdmissionFailure || e.Error.Node != w.address(1, 2) {
			t.Errorf("told %t: %+v", failed, e.Error)
		}
		w.stayedUp(old)
		for i, n := range w.routers {
			if n.installed[old] != before[i][old] {
				t.Errorf("router %d: before %+v, after %+v", i, before[i][old], n.installed[old])
			}
		}
		for i, want := range []uint64{600, 600, 100} {
			if free := w.free(i, len(w.routers[i].config.Interfaces), 7); free != want {
				t.Errorf("router %d has %d left, want %d", i, free, want)
			}
		}
		if givenUp {
			w.removeLSP(0, larger.Key)
		}
		w.removeLSP(2, other)
		w.run(5 * testRefresh)
		if _, replaced := w.routers[0].told(Replaced, old); replaced == givenUp {
			t.Errorf("given up: %t, replaced: %t", givenUp, replaced)
		}
		if givenUp {
			w.stayedUp(old)
		} else {
			w.stayedUp(larger.Key)
		}
		w.check()
	}
}

// The Path of an increase passes, and its Resv is refused, as another LSP was quicker: all that were up stay up. Which
// one is quicker depends on the seed. So it is after a restart.
func TestAnIncreaseThatIsRefusedByItsResvLeavesTheOldReservation(t *testing.T) {
	const seeds = 30
	refused := 0
	for seed := range uint64(seeds) {
		w := newWorld(t, seed, 5, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{4, 1})
		old := w.mustAdd(0, w.shared(1, 1, 400, 0, 1, 2, 3))
		w.run(testTick)
		larger := w.shared(1, 2, 800, 0, 1, 2, 3)
		larger.Replaces = old.LSP
		w.mustAdd(0, larger)
		rival := w.mustAdd(4, w.request(2, 1, 500, 4, 1, 2))
		w.run(2 * testTick)
		if _, up := w.routers[0].installed[larger.Key]; up {
			w.stayedUp(larger.Key)
			continue
		}
		refused++
		w.stayedUp(old)
		if _, up := w.routers[4].installed[rival]; !up {
			t.Errorf("seed %d: neither of the two is up", seed)
		}
		w.run(5 * testRefresh)
		w.stayedUp(old)
		before := w.routers[1].installed[old]
		w.crash(1) // it finds the increase refused before it has the old reservation
		w.resume(1, false)
		w.run(5 * testRefresh)
		w.stayedUp(old)
		if after := w.routers[1].installed[old]; after != before {
			t.Errorf("seed %d: before a restart %+v, after %+v", seed, before, after)
		}
		w.removeLSP(0, larger.Key)
		w.run(5 * testRefresh)
		w.stayedUp(old)
		if free := w.free(1, 2, 7); free != 100 {
			t.Errorf("seed %d: %d are left, want 100", seed, free)
		}
		w.check()
	}
	if refused == 0 || refused == seeds {
		t.Errorf("%d of %d were refused", refused, seeds)
	}
}

// A new way and another bandwidth at once, over a link that both ways have: there is room for one of them alone.
func TestAnLSPIsRerouted(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 1}, [2]int{1, 3}, [2]int{1, 2}, [2]int{2, 3})
	old := w.mustAdd(0, w.shared(1, 1, 700, 0, 1, 3))
	w.run(testTick)
	next := w.shared(1, 2, 800, 0, 1, 2, 3)
	next.Replaces = old.LSP
	w.mustAdd(0, next)
	w.run(testTick)
	w.check()
	w.stayedUp(next.Key)
	if _, replaced := w.routers[0].told(Replaced, old); !replaced {
		t.Error("not replaced")
	}
	for index, want := range map[int]uint64{2: 1000, 3: 200} {
		if free := w.free(1, index, 7); free != want {
			t.Errorf("interface %d has %d left, want %d", index, free, want)
		}
	}
	if free := w.free(0, 1, 7); free != 200 {
		t.Errorf("the shared link has %d left, want 200", free)
	}
	if w.routers[3].lsps[old] != nil {
		t.Error("the old LSP is still at the egress")
	}
}
