package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// Super-frames are cut before routers from where frames may leave a walk with labels: into a queue, or to another host.
// Where a path is walked to its end, nothing changes.
func TestSuperFramesAreCutWhereLabelsLeaveTheWalk(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "h3"}, []string{"h3", "h4"})
	for _, name := range []string{"h1", "h2", "h3"} {
		s.Node(name).Kind = slice.Router
	}
	for _, l := range s.Links {
		for _, e := range l.Ends {
			s.Node(e.Node).Interface(e.Interface).Link = l.Name
		}
	}
	s.LSPs = []slice.LSP{{Name: "h1--h3", ID: 1, To: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Hops: []slice.Hop{
			{Node: "h1", Out: "eth1"}, {Node: "h2", In: "eth1", Out: "eth2", Label: 16},
			{Node: "h3", In: "eth1", Label: slice.ImplicitNull},
		}}}
	cut := func(w *Wanted) (ports []string) {
		for _, r := range w.Resources {
			if l, is := w.Detail(r.Key).(wiring.Link); is && l.Program {
				ports = append(ports, l.A.Port)
			}
		}
		return ports
	}
	check := func(when string, w *Wanted, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, cut(w)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", when, diff)
		}
	}
	check("all is walked", mustWant(t, Input{Spec: s}))
	s.Links[1].Ends[0].Shape = slice.Shape{Rate: 1e6} // where there is no label any more
	check("the last link has a queue", mustWant(t, Input{Spec: s}))
	s.Links[0].Ends[0].Shape = slice.Shape{Rate: 1e6}
	check("the first link has a queue", mustWant(t, Input{Spec: s}), "s7p1", "s7p3", "s7p5")
	s.LSPs = nil
	check("without LSPs", mustWant(t, Input{Spec: s}))
}
