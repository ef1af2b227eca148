package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Of two with the same priority the larger one goes first, until it holds by a better one.
func TestAPriorityThatChangesChangesWhoIsPreempted(t *testing.T) {
	w := chain(t, 3, 1000)
	q := w.request(1, 1, 400, 0, 1, 2)
	large, small := w.mustAdd(0, q), w.mustAdd(0, w.request(2, 1, 300, 0, 1, 2))
	w.run(testTick)
	l := w.routers[1].interfaces[2]
	if first := l.victims[0].key; first != large {
		t.Errorf("%s goes first", first)
	}
	q.Attribute.Holding = 1
	w.routers[0].lsps[large].path.rest = []message.Object{q.Attribute}
	w.routers[0].sendPath(w.routers[0].lsps[large])
	w.flush(0)
	w.run(testTick)
	if first := l.victims[0].key; first != small {
		t.Errorf("%s goes first", first)
	}
	if what := l.mistaken(); what != "" {
		t.Error(what)
	}
}
