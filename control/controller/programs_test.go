package controller

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// picky is a machine whose kernel refuses all packet programs.
type picky struct{ *fake }

func (picky) Supports(_ context.Context, s *slice.Slice) ([]string, error) {
	var found topology.Diagnostics
	for i := range s.Nodes {
		if s.Nodes[i].Program != nil {
			found = append(found, topology.Diagnostic{
				Path:    "nodes." + s.Nodes[i].Name + ".program",
				Message: "post.c:7: parse: loops", Hint: "loop less",
			})
		}
	}
	return nil, found.Err()
}

// withProgram is a topology as a client sends it that has checked nothing.
func withProgram(object []byte, filter string) *topology.Topology {
	p := topology.Node{}
	p.Program = &topology.Source{Path: "post.o", Data: object}
	p.Filters = []topology.Filter{{Filter: filter}}
	return &topology.Topology{Name: "lab", Nodes: map[string]topology.Node{"p": p}}
}

func TestProgramsAreCheckedWhateverTheClientDid(t *testing.T) {
	object, err := os.ReadFile("../programs/testdata/post.o")
	if err != nil {
		t.Fatal(err)
	}
	c, s, _ := member(t, &fake{})
	refuses := func(c *Controller, top *topology.Topology, at, what string) {
		t.Helper()
		_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
		var r *Refusal
		if !errors.As(err, &r) || len(r.Faults) != 1 || r.Faults[0].Location != at ||
			!strings.Contains(r.Faults[0].Message, what) {
			t.Errorf("%v: %+v, want %s at %s", err, r, what, at)
		}
		if records, err := s.Slices(t.Context()); err != nil || len(records) > 0 {
			t.Errorf("stored: %v, %v", records, err)
		}
	}
	refuses(c, withProgram([]byte("no object"), "any -> drop"), "nodes.p.program", "is no object file")
	refuses(c, withProgram(object, "aera=1 -> drop"), "nodes.p.filters", `no field "aera"`)
	kernel := New(s, picky{&fake{}}, &fake{}, c.events)
	refuses(kernel, withProgram(object, "any -> drop"), "nodes.p.program", "post.c:7: parse: loops (loop less)")
	_, spec, err := c.Apply(t.Context(), Caller{Root: true}, withProgram(object, "any -> drop"), false)
	if err != nil || len(spec.Programs) != 1 {
		t.Fatalf("a good program: %v", err)
	}
	stored, _, err := s.Slice(t.Context(), "lab")
	if err != nil || string(stored.Programs[slice.ObjectName(object)]) != string(object) {
		t.Errorf("stored: %v", err)
	}

	// Another program of the same name is a change, and nothing restarts.
	other := withProgram(object, "any -> punt")
	plan, _, err := c.Apply(t.Context(), Caller{Root: true}, other, true)
	if err != nil || len(plan.Nodes) != 1 || plan.Nodes[0].Restarts {
		t.Errorf("other filters: %+v, %v", plan, err)
	}
}
