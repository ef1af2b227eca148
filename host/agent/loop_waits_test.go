package agent

import (
	"testing"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// A node that waits is made, with its links, and not started; the network is not settled meanwhile, and says why. It
// can be taken down.
func TestLoopStartsANodeWhenThoseAreReadyThatItWaitsFor(t *testing.T) {
	for _, comes := range []bool{true, false} {
		l := newLoop(t)
		s := plantest.Slice(1, []string{"h1", "h2"})
		s.Node("h2").Restart = slice.RestartNever
		s.Node("h1").WaitFor = []slice.WaitFor{{Node: "h2", Until: slice.UntilExited}}
		l.wanted["lab1"] = &plan.Input{Spec: s}
		h1, h2 := sliver.ID{Slice: 1, Node: "h1"}, sliver.ID{Slice: 1, Node: "h2"}
		l.rounds(5)
		st := l.statuses["lab1"]
		if l.slivers[h1].State != sliver.Created || l.slivers[h2].State != sliver.Running || st.Settled ||
			st.Nodes["h1"].Message != "waits for h2 to end" {
			t.Fatalf("h1 %s, h2 %s, %+v", l.slivers[h1].State, l.slivers[h2].State, st)
		}
		if comes {
			l.kill(h2)
			l.slivers[h2].ExitCode = 0
			l.rounds(5)
			if st := l.statuses["lab1"]; l.slivers[h1].State != sliver.Running || !st.Settled ||
				!st.Nodes["h2"].Done {
				t.Errorf("h1 %s, %+v", l.slivers[h1].State, st)
			}
		}
		l.down(t)
	}
}
