package slice

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/unit"
)

func TestOverridesKeepWhatWasSetAndFollowTheFileOtherwise(t *testing.T) {
	queues := func(shares ...int) (all []Queue) {
		for _, share := range shares {
			all = append(all, Queue{Share: share})
		}
		return all
	}
	for name, c := range map[string]struct{ set, old, next, want Shape }{
		"a queue's share was set": {
			Shape{Rate: 10e6, Delay: time.Second, Queues: queues(1, 30, 5)},
			Shape{Rate: 10e6, Delay: time.Second, Queues: queues(1, 3, 5)},
			Shape{Rate: 20e6, Loss: 1, Queues: queues(2, 3, 6)},
			Shape{Rate: 20e6, Loss: 1, Queues: queues(2, 30, 6)},
		},
		"the rate was set": {
			Shape{Rate: 5e6, Queues: queues(1, 3)}, Shape{Rate: 10e6, Queues: queues(1, 3)},
			Shape{Rate: 20e6, Queues: queues(1, 4, 5)}, Shape{Rate: 5e6, Queues: queues(1, 4, 5)},
		},
		"impairments were set": {
			Shape{Delay: time.Second, Jitter: time.Millisecond, Loss: 2, Queue: 5}, Shape{Queue: 7},
			Shape{Delay: time.Minute, Rate: 1e6},
			Shape{Delay: time.Second, Jitter: time.Millisecond, Loss: 2, Queue: 5, Rate: 1e6},
		},
		"a length was set": {
			Shape{Queues: []Queue{{Share: 1, Length: unit.Length{Frames: 9}}}},
			Shape{Queues: []Queue{{Share: 1, Length: unit.Length{Frames: 82}}}},
			Shape{Queues: []Queue{{Share: 4, Length: unit.Length{Bytes: 9000}, Rate: 5e6}}},
			Shape{Queues: []Queue{{Share: 4, Length: unit.Length{Frames: 9}, Rate: 5e6}}},
		},
		"a queue was added": {
			Shape{Queues: queues(1, 2, 7)}, Shape{Queues: queues(1, 2)}, Shape{Queues: queues(1, 3)},
			Shape{Queues: queues(1, 3, 7)},
		},
		"a queue was added, and the file has more": {
			Shape{Queues: queues(1, 2, 7)}, Shape{Queues: queues(1, 2)}, Shape{Queues: queues(1, 3, 4, 5)},
			Shape{Queues: queues(1, 3, 7, 5)},
		},
		"a queue was added, and there would be a gap": {
			Shape{Queues: queues(1, 2, 7)}, Shape{Queues: queues(1, 2)}, Shape{Queues: queues(1)},
			Shape{Queues: queues(1)},
		},
		"queues were removed": {
			Shape{Queues: queues(1)}, Shape{Queues: queues(1, 2, 3)}, Shape{Queues: queues(4, 5, 6)},
			Shape{Queues: queues(4)},
		},
		"queues were removed, and the file has more": {
			Shape{Queues: queues(1)}, Shape{Queues: queues(1, 2, 3)}, Shape{Queues: queues(4, 5, 6, 7)},
			Shape{Queues: queues(4, 5, 6, 7)},
		},
		"the file has none any more": {
			Shape{Rate: 1e6, Queues: queues(1, 9)}, Shape{Rate: 2e6, Queues: queues(1, 2)},
			Shape{Rate: 2e6}, Shape{Rate: 1e6},
		},
		"the policer was taken away": {Shape{}, Shape{Police: Policer{Rate: 1e6}},
			Shape{Police: Policer{Rate: 2e6, Burst: 3000}, Rate: 1e6}, Shape{Rate: 1e6}},
		"the policer's rate was set": {Shape{Police: Policer{Rate: 3e6}}, Shape{Police: Policer{Rate: 1e6}},
			Shape{Police: Policer{Rate: 2e6, Burst: 3000}}, Shape{Police: Policer{Rate: 3e6, Burst: 3000}}},
	} {
		if diff := cmp.Diff(c.want, c.set.rebased(c.old, c.next)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff(c.set, c.set.rebased(c.old, c.old)); diff != "" {
			t.Errorf("%s, and the file stays as it is:\n%s", name, diff)
		}
		if diff := cmp.Diff(c.next, c.old.rebased(c.old, c.next)); diff != "" {
			t.Errorf("%s, where nothing was set:\n%s", name, diff)
		}
	}
}

func TestOverridesOfEndsThatAreGoneOrLikeTheFileAreDropped(t *testing.T) {
	link := func(rate unit.Rate, nodes ...string) *Slice {
		l := Link{Name: "l"}
		for _, n := range nodes {
			l.Ends = append(l.Ends, End{Node: n, Interface: "eth1", Shape: Shape{Rate: rate}})
		}
		return &Slice{Links: []Link{l}}
	}
	o := Overrides{Shapes: map[string]Shape{
		"a:eth1": {Rate: 2e6}, "b:eth1": {Rate: 5e6}, "c:eth1": {Rate: 5e6}, "d:eth1": {Rate: 9e6},
	}}
	got := o.ShapesFor(link(1e6, "a", "b", "c"), link(2e6, "a", "b", "d"))
	want := map[string]Shape{"b:eth1": {Rate: 5e6}, "d:eth1": {Rate: 9e6}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
