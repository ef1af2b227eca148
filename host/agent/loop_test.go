package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// loop is an agent on a machine in memory. Nothing runs but its passes, which the test calls.
type loop struct {
	*machine
	agent    *Agent
	wanted   map[string]*plan.Input
	deleting map[string]uint16
}

func newLoop(t require) *loop {
	l := &loop{machine: newMachine(), wanted: map[string]*plan.Input{}, deleting: map[string]uint16{}}
	l.restart(t)
	return l
}

// require is what *testing.T and *rapid.T have in common.
type require interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// restart starts another agent on the machine as it is.
func (l *loop) restart(t require) {
	t.Helper()
	l.fate = nil
	l.agent = newAgent(Config{Host: "A", Events: events.NewBus(10), Log: slog.New(slog.DiscardHandler)}, l.machine, l.machine)
	if err := l.agent.adopt(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// load gives the agent what is wanted now.
func (l *loop) load() {
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	l.agent.wishes, l.agent.deleting = maps.Clone(l.wanted), maps.Clone(l.deleting)
}

// pass has the agent look once, with what is wanted now.
func (l *loop) pass(ctx context.Context) {
	a := l.agent
	l.load()
	a.pass(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.gone { // as release does
		delete(l.deleting, name)
		delete(a.reports, name)
	}
}

// settle lets time pass until there is nothing left to do.
func (l *loop) settle(t require) {
	t.Helper()
	l.fate = nil
	const most = 40
	for range most {
		l.load()
		l.agent.mu.Lock()
		l.agent.backoff, l.agent.crashes = reconcile.Backoff{}, reconcile.Backoff{} // all pauses are over
		boots := len(l.agent.boots)
		l.agent.mu.Unlock()
		if boots > 0 {
			<-l.agent.nudge // one of them ended
		}
		done := boots == 0 && len(l.deleting) == 0 && len(l.difference(t)) == 0
		l.pass(context.Background()) // reports what it sees
		if done {
			l.check(t)
			return
		}
	}
	t.Fatalf("after %d passes: going %v, left to do: %v", most, l.deleting, l.difference(t))
}

// difference gives the actions that would make the machine as wanted.
func (l *loop) difference(t require) []reconcile.Action {
	t.Helper()
	seen, err := l.agent.observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want, broken := plan.New(l.agent.wishesFor(seen))
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	actions, err := reconcile.Plan(want.Resources, seen.resources, nil)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

// check looks at the machine itself for what users see, and at what was reported of it.
func (l *loop) check(t require) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		t.Fatalf("rules of the machine were broken: %q", l.wrong)
	}
	slivers, ports := 0, 0
	for _, w := range l.wanted {
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			power := w.Overrides.Power[n.Name]
			if n.Kind == slice.Switch || power == slice.PowerOff {
				continue
			}
			ports += len(n.Interfaces)
			if !n.HasSliver() {
				continue
			}
			slivers++
			state := map[bool]sliver.State{false: sliver.Running, true: sliver.Paused}[power == slice.PowerFrozen]
			if s := l.slivers[sliver.ID{Slice: w.Spec.ID, Node: n.Name}]; s == nil || s.State != state {
				t.Fatalf("%s of %s is %+v, want it %s", n.Name, w.Spec.Name, s, state)
			}
		}
		l.agent.mu.Lock()
		st := l.agent.reportLocked(w.Spec.Name).status
		l.agent.mu.Unlock()
		if len(st.Errors) > 0 || !st.Settled {
			t.Fatalf("%s is as wanted, and its status is %+v", w.Spec.Name, st)
		}
	}
	if len(l.slivers) != slivers || len(l.state.Ports) != ports || len(l.areas) != len(l.wanted) {
		t.Fatalf("%d slivers, %d ports, %d areas; want %d, %d, %d",
			len(l.slivers), len(l.state.Ports), len(l.areas), slivers, ports, len(l.wanted))
	}
}

// down removes all slices, and checks that nothing is left.
func (l *loop) down(t require) {
	t.Helper()
	for name, w := range l.wanted {
		l.deleting[name] = w.Spec.ID
	}
	clear(l.wanted)
	l.settle(t)
	if !l.isEmpty() {
		t.Fatalf("after down: areas %v, slivers %v, network %v: %+v", l.areas, l.slivers, l.present, l.state)
	}
}

// drawWanted draws slices and what users changed by hand. A slice that was there and is not drawn is to be removed.
func (l *loop) drawWanted(t *rapid.T) {
	name := rapid.SampledFrom([]string{"h1", "h2", "h3", "s1", "s2", "u1"})
	ends := rapid.SliceOfNDistinct(name, 2, 3, rapid.ID[string])
	for id := uint16(1); id <= 2; id++ {
		of := fmt.Sprint("lab", id)
		if _, deleting := l.deleting[of]; deleting {
			continue // its name is free when it is gone
		}
		if !rapid.Bool().Draw(t, "slice") {
			if w := l.wanted[of]; w != nil {
				l.deleting[of] = id
				delete(l.wanted, of)
			}
			continue
		}
		s := plantest.Slice(id, rapid.SliceOfN(ends, 1, 4).Draw(t, "links")...)
		w := &plan.Input{Spec: s, Overrides: slice.Overrides{Power: map[string]slice.Power{}, Down: map[string]bool{}, Restarts: map[string]int{}}}
		for i := range s.Nodes {
			n := &s.Nodes[i]
			w.Overrides.Power[n.Name] = rapid.SampledFrom([]slice.Power{"", "", slice.PowerOff, slice.PowerFrozen}).Draw(t, "power")
			w.Overrides.Restarts[n.Name] = rapid.IntRange(0, 1).Draw(t, "restarts")
			if n.Kind == slice.Host && rapid.Bool().Draw(t, "router") {
				n.Kind = slice.Router
			}
		}
		for i := range s.Links {
			l := &s.Links[i]
			w.Overrides.Down[l.Name] = rapid.IntRange(0, 3).Draw(t, "down") == 0
			if rapid.Bool().Draw(t, "shaped") {
				l.Ends[0].Shape.Rate = 1e6
			}
		}
		l.wanted[of] = w
	}
}

// drawFates draws what becomes of the first steps of a pass. With killAt, the agent is killed at that step: it does
// nothing more.
func drawFates(t *rapid.T, kill func()) func(string) outcome {
	script := rapid.SliceOfN(rapid.SampledFrom([]outcome{succeeds, succeeds, succeeds, fails, failsAfter, failsHalf}), 0, 30).Draw(t, "fates")
	killAt := int64(rapid.IntRange(0, 60).Draw(t, "killed at")) // beyond the script, most often: of a pass without failures
	var step atomic.Int64
	return func(string) outcome {
		n := step.Add(1)
		switch {
		case kill != nil && n == killAt:
			kill()
			return failsHalf
		case kill != nil && n > killAt && killAt > 0:
			return fails
		case n <= int64(len(script)):
			return script[n-1]
		}
		return succeeds
	}
}

// killOne ends the first process of a sliver.
func (l *loop) killOne(t *rapid.T) {
	all, _ := l.List()
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b sliver.Observed) int {
		return slices.Compare([]string{a.ID.String()}, []string{b.ID.String()})
	})
	id := rapid.SampledFrom(all).Draw(t, "node").ID
	l.kill(id)
	l.agent.noteExit(id)
}

func TestLoopEndsAsWantedWhateverFailsOrIsKilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLoop(t)
		for range rapid.IntRange(1, 6).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				l.drawWanted(t)
			case 2:
				l.killOne(t)
			case 3:
				l.restart(t)
			case 4: // the agent is killed in the middle of a pass, and another one starts
				ctx, kill := context.WithCancel(context.Background())
				l.fate = drawFates(t, kill)
				l.pass(ctx)
				kill()
				l.restart(t)
			}
			l.fate = drawFates(t, nil)
			l.pass(context.Background())
		}
		l.settle(t)
		l.down(t)
	})
}

// An agent that starts on a machine that is as wanted touches nothing.
func TestLoopAdoptsWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLoop(t)
		l.drawWanted(t)
		l.settle(t)
		l.restart(t)
		var touched []string
		l.fate = func(step string) outcome {
			if step != "prepare slice" { // an area is prepared anew by each agent: its files may be those of another version
				touched = append(touched, step)
			}
			return succeeds
		}
		l.pass(context.Background())
		l.pass(context.Background())
		if len(touched) > 0 {
			t.Fatalf("an agent that started did %q", touched)
		}
		l.settle(t)
	})
}

// What is to be made, and is not in the list of what is wanted, is an error: above all, the network is not opened for
// it.
func TestLoopMakesNothingThatIsNotWanted(t *testing.T) {
	l := newLoop(t)
	d := driver{Agent: l.agent, want: &plan.Wanted{}, seen: newSight()}
	for kind := plan.KindHostNet; kind <= plan.KindBoot; kind++ {
		act := reconcile.Action{Op: reconcile.OpCreate, Key: reconcile.Key{Kind: kind, Slice: 1, Name: "x"}}
		if err := d.do(t.Context(), act); err == nil {
			t.Errorf("%s: no error", plan.KindName(kind))
		}
	}
	if !l.isEmpty() || l.agent.network() != nil {
		t.Error("something was made")
	}
}

// A step of removing the network that fails does not keep the agent from removing it later, or from making it anew.
func TestLoopGoesOnWhenTheNetworkCannotBeRemoved(t *testing.T) {
	for _, step := range []string{"close network", "remove network"} {
		for _, how := range []outcome{fails, failsAfter} {
			l := newLoop(t)
			l.wanted["lab1"] = &plan.Input{Spec: plantest.Slice(1, []string{"h1", "h2"})}
			l.settle(t)
			l.wanted, l.deleting = map[string]*plan.Input{}, map[string]uint16{"lab1": 1}
			l.fate = func(name string) outcome {
				if name == step {
					return how
				}
				return succeeds
			}
			for range 5 {
				l.pass(t.Context())
			}
			l.wanted["lab2"] = &plan.Input{Spec: plantest.Slice(2, []string{"h1", "h2"})}
			l.settle(t)
			l.down(t)
		}
	}
}
