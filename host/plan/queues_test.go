package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
)

func (w *Wanted) queuesOf(s *slice.Slice) []Queue {
	var links []*slice.Link
	for i := range s.Links {
		links = append(links, &s.Links[i])
	}
	return w.Queues(s.ID, links...)
}

func TestQueuesSayWhichDirectionWaitsWhere(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "s1"}, []string{"s1", "s2"},
		[]string{"h1", "h2", "s1"}, []string{"h1", "h2"})
	rate := slice.Shape{Rate: 1e6}
	classes := slice.Shape{Rate: 1e6, Classes: []slice.Class{{Name: "x", Share: 1, Priority: 1}, {Name: "y"}}}
	s.Links[0].Ends[0].Shape, s.Links[0].Ends[1].Shape = classes, slice.Shape{Queue: 9}
	s.Links[1].Ends[1].Shape = rate
	s.Links[2].Ends[0].Shape = rate
	s.Links[3].Ends[1].Shape, s.Links[3].Ends[2].Shape = classes, rate
	s.Links[4].Ends[0].Shape = slice.Shape{Delay: 1} // nothing waits for its turn
	one, two := []QueueClass{{Minor: 1}}, []QueueClass{{16, "x"}, {17, "y"}}
	want := []Queue{
		{"h1:eth1 h2:eth1 ", "h1:eth1", "h2:eth1", "s7p2", two},
		{"h1:eth1 h2:eth1 ", "h2:eth1", "h1:eth1", "s7p1", one},
		{"h2:eth2 s1:eth1 ", "s1:eth1", "h2:eth2", "s7p3", one},
		{"s1:eth2 s2:eth1 ", "s1:eth2", "s2:eth1", "s7p5", one},
		{"h1:eth2 h2:eth3 s1:eth3 ", "h2:eth3", "h1:eth2 h2:eth3 s1:eth3 ", "s7p8q", two},
		{"h1:eth2 h2:eth3 s1:eth3 ", "h1:eth2 h2:eth3 s1:eth3 ", "h2:eth3", "s7p8m", one},
		{"h1:eth2 h2:eth3 s1:eth3 ", "s1:eth3", "h1:eth2 h2:eth3 s1:eth3 ", "s7p9", one},
		{"h1:eth2 h2:eth3 s1:eth3 ", "h1:eth2 h2:eth3 s1:eth3 ", "s1:eth3", "s7p9l", one},
	}
	if diff := cmp.Diff(want, mustWant(t, Input{Spec: s}).queuesOf(s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	down := slice.Overrides{Down: map[string]bool{s.Links[0].Name: true}}
	if diff := cmp.Diff(want[2:], mustWant(t, Input{Spec: s, Overrides: down}).queuesOf(s)); diff != "" {
		t.Errorf("with the first link down, -want +got:\n%s", diff)
	}
	if got := mustWant(t, Input{Spec: s}).Queues(7, &s.Links[2]); !cmp.Equal(got, want[3:4]) {
		t.Errorf("of one link: %+v", got)
	}
}

// Each host has the queues of what its own nodes send, and together they have all.
func TestQueuesOfASpreadSlice(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "h2", "h3"}),
		map[string]string{"h1": "A", "h2": "B", "h3": "B"})
	for i := range s.Links {
		for k := range s.Links[i].Ends {
			s.Links[i].Ends[k].Shape = slice.Shape{Rate: 1e6}
		}
	}
	from := map[string][]string{}
	for _, host := range []string{"A", "B"} {
		w, broken := New(placeOf(host), []Input{{Spec: s}})
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		for _, q := range w.queuesOf(s) {
			from[host] = append(from[host], q.From+" > "+q.To)
		}
		slices.Sort(from[host])
	}
	lan := "h1:eth2 h2:eth2 h3:eth1 "
	want := map[string][]string{
		"A": {"h1:eth1 > h2:eth1", "h1:eth2 > " + lan, lan + " > h1:eth2"},
		"B": {
			"h2:eth1 > h1:eth1", lan + " > h2:eth2", lan + " > h3:eth1", "h2:eth2 > " + lan,
			"h3:eth1 > " + lan,
		},
	}
	for _, all := range want {
		slices.Sort(all)
	}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
