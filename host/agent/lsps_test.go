package agent

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/speakers"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
)

// A host answers for its routers from when it knows the slice, and also if it cannot make it.
func TestLSPsAreToldBeforeTheFirstPass(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(7, []string{"h1", "h2"})
	s.LSPs = []slice.LSP{{Name: "h1--h2", ID: 1, Hops: []slice.Hop{{Node: "h1"}, {Node: "h2", Label: 16}}}}
	l.wanted[s.Name] = &plan.Input{Spec: s}
	l.load()
	have, err := l.agent.LSPs(context.Background(), s.Name)
	const why = "there is no fast path"
	want := []api.LSPHop{{LSP: "h1--h2", Node: "h1", Problem: why}, {LSP: "h1--h2", Node: "h2", Problem: why}}
	if diff := cmp.Diff(want, have.Hops); diff != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, diff)
	}
	if have.Generation != s.Generation {
		t.Errorf("it is told of version %d, which is %d", have.Generation, s.Generation)
	}
	for name, hops := range map[string]int{"h1--h2": 2, "another": 0} {
		if have, err = l.agent.LSPs(context.Background(), s.Name, name); len(have.Hops) != hops || err != nil {
			t.Errorf("of %s alone: %v, %v", name, have.Hops, err)
		}
	}
}

// Its labels, its speakers and its fast path are worked out anew in each pass, and by what was known last.
func TestWhatRoutersDoStaysWhenTheirSliceCannotBeRead(t *testing.T) {
	const file = `name: lab
nodes: {a: {routing: ospf}, b: {routing: ospf}, c: {routing: ospf}}
links: [[a, b], [b, c]]
lsps: [{path: [a, b, c], to: 10.9.0.0/24}, {name: gold, path: [a, c], bandwidth: 1Mbit, to: 10.8.0.0/24}]
`
	l := newLoop(t)
	s := agenttest.Resolved(t, file, nil)
	seen := agenttest.Seen(s)
	l.wanted[s.Name] = &plan.Input{Spec: s}
	check := func(when string) {
		t.Helper()
		l.load()
		at, all := l.agent.inputs.For(seen)
		all = plan.Readable(all)
		want := labels.Of(at, all, seen)
		if n := len(want.Entries); n != 2 || len(want.Unknown) > 0 {
			t.Errorf("%s: %d labels are wanted, and %v are not known", when, n, want.Unknown)
		}
		if n := len(speakers.Of(at, all, seen)); n != 3 {
			t.Errorf("%s: %d routers speak", when, n)
		}
		if n := len(fastpath.Routers(all, seen, want.Routers)); n != 3 {
			t.Errorf("%s: %d routers are on the fast path", when, n)
		}
	}
	check("as it is read")
	for _, when := range []string{"when it cannot be read", "when it still cannot be read"} {
		l.wanted[s.Name] = &plan.Input{Spec: &slice.Slice{Name: s.Name, ID: s.ID}, Corrupt: store.ErrCorrupt}
		check(when)
	}
	l.wanted[s.Name] = &plan.Input{Spec: s}
	check("as it is read again")
}
