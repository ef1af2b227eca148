package agent

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
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
}
