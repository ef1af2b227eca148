package agent

import (
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// A newer version of a program takes the place of the older one: nothing else of the node is touched.
func TestLoopReplacesAProgramAndTouchesNothingElse(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "p1"}, []string{"p1", "h2"})
	l.wanted["lab1"] = &plan.Input{Spec: s}
	l.settle(t)
	newer := *s
	newer.Nodes = append([]slice.Node(nil), s.Nodes...)
	newer.Programs = nil
	newer.Generation++
	plantest.SetProgram(&newer, "p1", "a newer program")
	l.wanted["lab1"] = &plan.Input{Spec: &newer}
	var steps []string
	l.fate = func(step string) outcome { steps = append(steps, step); return succeeds }
	l.pass(t.Context())
	if strings.Join(steps, " ") != "set program" {
		t.Errorf("it did %q", steps)
	}
	l.settle(t)
	l.down(t)
}

func TestLoopLeavesTheOlderProgramRunningWhenTheNewerOneIsRefused(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "p1"}, []string{"p1", "h2"})
	l.wanted["lab1"] = &plan.Input{Spec: s}
	l.settle(t)
	before := l.runs["1-p1"]
	bad := *s
	bad.Nodes = append([]slice.Node(nil), s.Nodes...)
	bad.Generation++
	plantest.SetProgram(&bad, "p1", refusedProgram)
	l.wanted["lab1"] = &plan.Input{Spec: &bad}
	l.pass(t.Context())
	l.pass(t.Context())
	if now := l.runs["1-p1"]; now.Digest != before.Digest {
		t.Errorf("the older program is gone: %+v", now)
	}
	st := l.statuses["lab1"]
	n := st.Nodes["p1"]
	if st.Settled || n.Phase != slice.Running || !strings.Contains(n.Message, "goes on as it was") ||
		!strings.Contains(n.Message, "x.c:7") || len(st.Errors) != 1 {
		t.Errorf("status %+v", st)
	}
	l.wanted["lab1"] = &plan.Input{Spec: s}
	l.settle(t)
}

// The way from XDP to tc that could not be made with the program is tried again, by later passes.
func TestLoopMakesTheWayFromXDPOfAProgramThatRuns(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "p1"}, []string{"p1", "h2"})
	l.wanted["lab1"] = &plan.Input{Spec: s}
	l.noHandover = true
	l.pass(t.Context())
	l.pass(t.Context())
	if st := l.statuses["lab1"]; st.Settled || !l.runs["1-p1"].CutOff ||
		!strings.HasPrefix(st.Nodes["p1"].Message, "program of p1: it runs, ") ||
		!strings.HasSuffix(st.Nodes["p1"].Message, errNoHandover.Error()) {
		t.Errorf("status %+v", st)
	}
	l.noHandover = false
	l.settle(t)
	if l.runs["1-p1"].CutOff {
		t.Error("the program is still cut off")
	}
}

func TestLoopReportsANodeAsFailedWhoseFirstProgramIsRefused(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "p1"})
	plantest.SetProgram(s, "p1", refusedProgram)
	l.wanted["lab1"] = &plan.Input{Spec: s}
	l.pass(t.Context())
	l.pass(t.Context())
	st := l.statuses["lab1"]
	n := st.Nodes["p1"]
	if n.Phase != slice.Failed || !strings.Contains(n.Message, "load the program of p1: x.c:7") {
		t.Errorf("status %+v", st)
	}
	if s := l.slivers[sliver.ID{Slice: 1, Node: "p1"}]; s == nil || s.State != sliver.Running {
		t.Errorf("its sliver is %+v", s)
	}
}
