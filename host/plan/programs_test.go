package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// resource gives one that is wanted.
func resource(t *testing.T, w *Wanted, k reconcile.Key) reconcile.Resource {
	t.Helper()
	for _, r := range w.Resources {
		if r.Key == k {
			return r
		}
	}
	t.Fatalf("%v is not wanted", k)
	return reconcile.Resource{}
}

func TestProgramsKnowTheirPortsThatAreUp(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "p1"}, []string{"p1", "s1"}, []string{"p1", "h2"}, []string{"s1", "h3"})
	slices.Reverse(s.Node("p1").Program.Interfaces)
	k := reconcile.Key{Kind: KindProgram, Slice: 7, Name: "p1"}
	ports := func(o slice.Overrides) []string {
		return mustWant(t, Input{Spec: s, Overrides: o}).Detail(k).(Program).Ports
	}
	down := slice.Overrides{Down: map[string]bool{s.Links[0].Name: true}}
	off := slice.Overrides{Power: map[string]slice.Power{"h2": slice.PowerOff}}
	for name, c := range map[string]struct {
		by   slice.Overrides
		want []string
	}{
		"all are up":        {slice.Overrides{}, []string{"s7p5", "s7p3", "s7p2"}},
		"a link is cut":     {down, []string{"s7p5", "s7p3", ""}},
		"a neighbour stops": {off, []string{"", "s7p3", "s7p2"}},
	} {
		if diff := cmp.Diff(c.want, ports(c.by)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	stopped := slice.Overrides{Power: map[string]slice.Power{"p1": slice.PowerOff}}
	if mustWant(t, Input{Spec: s, Overrides: stopped}).Has(k) {
		t.Error("a node that is off has a program")
	}
}

// Of what a node is made from, another program, other filters and a cut link change the program alone.
func TestAnotherProgramChangesNothingElse(t *testing.T) {
	k := reconcile.Key{Kind: KindProgram, Slice: 7, Name: "p1"}
	was := mustWant(t, Input{Spec: plantest.Slice(7, []string{"h1", "p1"})})
	for name, change := range map[string]func(*slice.Slice){
		"program": func(s *slice.Slice) { plantest.SetProgram(s, "p1", "a newer program") },
		"filters": func(s *slice.Slice) { s.Node("p1").Program.Filters = []string{"any -> drop"} },
	} {
		s := plantest.Slice(7, []string{"h1", "p1"})
		change(s)
		is := mustWant(t, Input{Spec: s})
		for _, r := range is.Resources {
			if changed := r.Digest != resource(t, was, r.Key).Digest; changed != (r.Key == k) {
				t.Errorf("%s: %v changes: %v", name, r.Key, changed)
			}
		}
		if !resource(t, is, k).Amend {
			t.Errorf("%s: the program is not amended in place", name)
		}
	}
}

func TestSuperFramesAreCutBeforePrograms(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "p1"}, []string{"p1", "s1"}, []string{"h1", "h2"}, []string{"h2", "p1"})
	s.Links[3].Ends[0].Shape.Rate = 1e6
	want := map[string]wiring.Link{
		"s7p1": {Program: true}, "s7p3": {Program: true, Reinject: true}, "s7p7": {Program: true, Reinject: true},
	}
	for k, detail := range mustWant(t, Input{Spec: s}).details {
		if l, is := detail.(wiring.Link); is {
			if w := want[l.A.Port]; w.Program != l.Program || w.Reinject != l.Reinject {
				t.Errorf("%v: %+v", k, l)
			}
			delete(want, l.A.Port)
		}
	}
	if len(want) > 0 {
		t.Errorf("%v are missing", want)
	}
	placed := plantest.Spread(plantest.Slice(7, []string{"h1", "p1"}), map[string]string{"h1": "A", "p1": "B"})
	for _, c := range []struct {
		host string
		want bool
	}{{"A", false}, {"B", true}} {
		at := Place{Host: c.host, Joined: true, Address: plantest.Hosts[c.host], Peers: plantest.Hosts}
		w, broken := New(at, []Input{{Spec: placed}})
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		found := false
		for _, detail := range w.details {
			l, is := detail.(wiring.Link)
			found = found || is && l.Program
		}
		if found != c.want {
			t.Errorf("host %s cuts super-frames out of the tunnel: %v", c.host, found)
		}
	}
}

func TestProgramNamesAreReadBack(t *testing.T) {
	for _, id := range []NodeID{{1, "a"}, {4095, "my-node_1"}} {
		if got, ok := ParseProgramName(id.ProgramName()); !ok || got != id {
			t.Errorf("%v is read back as %v, %v", id, got, ok)
		}
	}
	for _, name := range []string{"", "a", "-a", "1-", "70000-a", "x-a"} {
		if id, ok := ParseProgramName(name); ok {
			t.Errorf("%q is %v", name, id)
		}
	}
}

// Tunnels of a slice with packet programs count how many of them frames have met, those between its other nodes, too.
func TestTunnelsOfASliceWithProgramsCount(t *testing.T) {
	for _, nodes := range [][]string{{"h1", "h2", "p1"}, {"h1", "h2", "h3"}} {
		s := plantest.Spread(plantest.Slice(7, []string{nodes[0], nodes[1]}, []string{nodes[1], nodes[2]}),
			map[string]string{"h1": "B", "h2": "C", nodes[2]: "A"})
		tunnels := 0
		for host, w := range wantedBy(t, Input{Spec: s}) {
			for name, tun := range w.tunnels() {
				if want := s.Node("p1") != nil; tun.CountsMet != want {
					t.Errorf("%v, host %s: tunnel %s counts: %v", nodes, host, name, tun.CountsMet)
				}
				tunnels++
			}
		}
		if tunnels != 4 {
			t.Errorf("%v: %d ends of tunnels", nodes, tunnels)
		}
	}
}
