package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

// The next version of Pergola adopts what runs by its digest: a digest that changes has every sliver or port of every
// host made anew. Where that is meant, the values here change with it.
func TestDigestsStayAsTheyAreAcrossVersions(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "h3", "h1"}), map[string]string{
		"h1": "A", "h2": "B", "h3": "A",
	})
	n := s.Node("h1")
	n.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "kernel.msgmax": "9"}
	n.Loopbacks = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	n.Env, n.Memory, n.CPU = map[string]string{"A": "b"}, 1<<20, 0.5
	n.Interfaces[0].Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")}
	s.Links[0].Ends[0].Shape = slice.Shape{Rate: 1e6}
	w, broken := New(placeOf("A"), []Input{{Spec: s}})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	got := map[string]string{}
	for _, r := range w.Resources {
		switch r.Key.Kind {
		case KindArea, KindSliver, KindPort, KindNodeNet, KindProcess, KindBoot:
			got[KindName(r.Key.Kind)+" "+r.Key.Name] = r.Digest
		}
	}
	want := map[string]string{
		"area ":            "9fcc0c2102c5add2f7a142c8",
		"sliver h1":        "39b495afbe4503a58c61f9af",
		"sliver h3":        "450ac26159bd953e27331163",
		"port s7p1":        "3440ade75d343410623e1fdf",
		"port s7p2":        "ab556c3d833358ad6d5e3f6f",
		"port s7p4":        "3440ade75d343410623e1fdf",
		"port s7p5":        "e92d15a9aa5b2ded386bc43a",
		"port s7t6e2rn7bs": "a84f29945cb4d3d5ce0981b0",
		"net h1":           "e1bc6e290304d9fb2778352e",
		"net h3":           "8bc7b2d884d30a92a2c67c00",
		"process h1":       "running",
		"process h3":       "running",
		"boot h1":          "booted",
		"boot h3":          "booted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An agent that is started without a store knows by its mark alone what the fence ends: no process of the node may run
// before the mark is there.
func TestANewSliverBearsTheMarkOfTheFence(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "A"})
	key := reconcile.Key{Kind: KindSliver, Slice: 7, Name: "h1"}
	before, _ := New(placeOf("A"), []Input{{Spec: s}})
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	after, _ := New(placeOf("A"), []Input{{Spec: s}})
	was, is := before.Detail(key).(Sliver), after.Detail(key).(Sliver)
	if was.Notes[FenceNote] != "" || is.Notes[FenceNote] == "" {
		t.Errorf("marks %v, then %v", was.Notes, is.Notes)
	}
	if was.Digest != is.Digest {
		t.Error("another policy makes the sliver anew")
	}
}
