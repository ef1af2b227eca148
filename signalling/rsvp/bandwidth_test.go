package rsvp

import "testing"

// Take tells what is left once for each change, and nothing for what changes nothing.
func TestTakeTellsWhatIsUnreservedWhenItChanges(t *testing.T) {
	w := chain(t, 2, 1000)
	left := func() [priorities]uint64 { return w.routers[0].left[1].Unreserved }
	all := [priorities]uint64{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}
	if left() != all || w.routers[0].left[1].Reservable != 1000 {
		t.Errorf("at first, told %+v", w.routers[0].left)
	}
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1)) // it holds by priority 4
	if left() != all {
		t.Errorf("before the reservation, %v is left", left())
	}
	w.run(testTick)
	if want := [priorities]uint64{1000, 1000, 1000, 1000, 600, 600, 600, 600}; left() != want {
		t.Errorf("%v is left, want %v", left(), want)
	}
	w.routers[0].Tick(w.now)
	if out := w.routers[0].Take(); len(out.Bandwidth) > 0 {
		t.Errorf("nothing has changed, and told is %+v", out.Bandwidth)
	}
	w.setLink(w.links[0][0], false)
	if left() != [priorities]uint64{} {
		t.Errorf("of a link that is down, %v is left", left())
	}
	w.setLink(w.links[0][0], true)
	w.removeLSP(0, k)
	if left() != all {
		t.Errorf("at the end, %v is left", left())
	}
}
