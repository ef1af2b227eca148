package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// What leaves a queue or a LAN for a router that is walked is reinjected into the data path; for hosts, for routers off
// the fast path and on links that hold nothing up, it need not.
func TestFramesAreReinjectedWhereARouterIsWalked(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "h3"}, []string{"h3", "h4"}, []string{"h1", "h4"},
		[]string{"h1", "h2", "h4"})
	for _, name := range []string{"h2", "h3", "h4"} {
		s.Node(name).Kind = slice.Router
	}
	s.Node("h4").FastPath = slice.FastPathOff
	for _, i := range []int{0, 2, 3} { // h1-h2, h3-h4, h1-h4
		s.Links[i].Ends[0].Shape = slice.Shape{Rate: 1e6}
	}
	reinjected := func(w *Wanted) map[string]bool {
		all := make(map[string]bool)
		for key, detail := range w.details {
			if key.Kind == KindQueue {
				l := detail.(wiring.Link)
				all[l.A.Port] = l.Reinject
			}
		}
		return all
	}
	want := map[string]bool{
		"s7p1":  true,  // shaped, to a router
		"s7p5":  true,  // shaped, from a router that is walked to one that is not
		"s7p7":  false, // shaped, between a host and a router that is not walked
		"s7p10": true,  // a router on a LAN
	}
	if diff := cmp.Diff(want, reinjected(mustWant(t, Input{Spec: s}))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// To be switched off or on takes nothing but queues to change.
	was := mustWant(t, Input{Spec: s})
	for _, name := range []string{"h2", "h3"} {
		s.Node(name).FastPath = slice.FastPathOff
	}
	is := mustWant(t, Input{Spec: s})
	digests := make(map[reconcile.Key]string)
	for _, r := range was.Resources {
		digests[r.Key] = r.Digest
	}
	for _, r := range is.Resources {
		if r.Digest != digests[r.Key] && r.Key.Kind != KindQueue {
			t.Errorf("%v changes", r.Key)
		}
	}
	for port, reinject := range reinjected(is) {
		if reinject {
			t.Errorf("frames to %s are still reinjected", port)
		}
	}
}
