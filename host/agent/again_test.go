package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

// What leaves a queue or a LAN for a router that is walked enters the data path again; for hosts, for routers off the fast path and
// on links that hold nothing up, it need not.
func TestFramesEnterAgainWhereARouterIsWalked(t *testing.T) {
	s := network(7, []string{"h1", "h2"}, []string{"h2", "h3"}, []string{"h3", "h4"}, []string{"h1", "h4"}, []string{"h1", "h2", "h4"})
	for _, name := range []string{"h2", "h3", "h4"} {
		s.Node(name).Kind = slice.Router
	}
	s.Node("h4").FastPath = slice.FastPathOff
	for _, i := range []int{0, 2, 3} { // h1-h2, h3-h4, h1-h4
		s.Links[i].Ends[0].Shape = slice.Shape{Rate: 1e6}
	}
	again := func(w *wanted) map[string]bool {
		all := make(map[string]bool)
		for key, detail := range w.details {
			if key.Kind == kindQueue {
				all[key.Name] = detail.(queue).again
			}
		}
		return all
	}
	want := map[string]bool{
		"s7p1": true, "s7p2": true, // shaped, to a router
		"s7p5": true, "s7p6": true, // shaped, from a router that is walked to one that is not
		"s7p7":  false, // shaped, between a host and a router that is not walked
		"s7p10": true,  // a router on a LAN
	}
	if diff := cmp.Diff(want, again(mustWant(t, wish{spec: s}))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// To be switched off or on takes nothing but queues to change.
	was := mustWant(t, wish{spec: s})
	for _, name := range []string{"h2", "h3"} {
		s.Node(name).FastPath = slice.FastPathOff
	}
	is := mustWant(t, wish{spec: s})
	digests := make(map[reconcile.Key]string)
	for _, r := range was.resources {
		digests[r.Key] = r.Digest
	}
	for _, r := range is.resources {
		if r.Digest != digests[r.Key] && r.Key.Kind != kindQueue {
			t.Errorf("%v changes", r.Key)
		}
	}
	for port, again := range again(is) {
		if again {
			t.Errorf("frames to %s still enter again", port)
		}
	}
}
