package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/drive"
	"github.com/pergola-net/pergola/host/agent/failures"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// loop is an agent on a machine and a store in memory, which it is given as the product is given its own: by Config.
// Nothing runs but its passes, which the test calls.
type loop struct {
	*memoryMachine
	*memoryStore
	agent  *Agent
	events *events.Bus
	loaded map[string]any // by slice: what the agent has read of it
}

func newLoop(t require) *loop {
	l := &loop{memoryMachine: newMemoryMachine(), memoryStore: newMemoryStore()}
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
	l.fate, l.events, l.loaded = nil, events.NewBus(10), map[string]any{}
	a, err := New(context.Background(), Config{
		Host: "A", Runtime: l.memoryMachine, Platform: l.memoryMachine, Store: l.memoryStore,
		Events: l.events, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.agent = a
}

// load has the agent read what has changed in the store since it last did.
func (l *loop) load() {
	now := map[string]any{}
	for name, w := range l.wanted {
		now[name] = w
	}
	for name, id := range l.deleting {
		now[name] = id
	}
	for name, is := range now {
		if l.loaded[name] != is {
			c := store.Change{What: store.SpecChanged, Slice: name}
			if _, err := l.agent.inputs.Load(context.Background(), c); err != nil {
				panic(err) // the store in memory always answers
			}
		}
	}
	l.loaded = now
}

// pass has the agent make one pass, with what is wanted now, and report.
func (l *loop) pass(ctx context.Context) {
	l.load()
	l.agent.pass(ctx)
	l.agent.reports.Write(context.Background())
	l.agent.reports.Release(context.Background())
}

// rounds has the agent make n passes, each when the nodes that the one before it started have run their exec lines.
func (l *loop) rounds(n int) {
	for range n {
		for len(l.agent.driver.Boots()) > 0 {
			<-l.agent.wakes // one of them ended
		}
		l.pass(context.Background())
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
		l.agent.failures = failures.Failures{} // all pauses are over
		l.agent.mu.Unlock()
		boots := len(l.agent.driver.Boots())
		if boots > 0 {
			<-l.agent.wakes // one of them ended
		}
		done := boots == 0 && len(l.deleting) == 0 && len(l.difference(t)) == 0
		l.pass(context.Background()) // reports what it observes
		if done {
			l.check(t)
			return
		}
	}
	t.Fatalf("after %d passes: deleting %v, left to do: %v", most, l.deleting, l.difference(t))
}

// difference gives the actions that would make the machine as wanted.
func (l *loop) difference(t require) []reconcile.Action {
	t.Helper()
	seen, err := observe.Read(context.Background(), l.agent.machine, l.agent.driver.Areas())
	if err != nil {
		t.Fatal(err)
	}
	want, broken := plan.New(l.agent.inputs.For(seen))
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	actions, err := reconcile.Plan(want.Resources, seen.Resources, nil)
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
	slivers, ports, programs := 0, 0, 0
	for _, w := range l.wanted {
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			power := w.Overrides.Power[n.Name]
			if n.Kind == slice.Switch || power == slice.PowerOff {
				continue
			}
			ports += len(n.Interfaces)
			if n.Kind == slice.Program {
				programs++
				l.checkProgram(t, w.Spec, n)
			}
			if !n.HasSliver() {
				continue
			}
			slivers++
			state := sliver.Running
			if power == slice.PowerFrozen {
				state = sliver.Paused
			}
			if s := l.slivers[sliver.ID{Slice: w.Spec.ID, Node: n.Name}]; s == nil || s.State != state {
				t.Fatalf("%s of %s is %+v, want it %s", n.Name, w.Spec.Name, s, state)
			}
		}
		st := l.statuses[w.Spec.Name]
		if len(st.Errors) > 0 || !st.Settled {
			t.Fatalf("%s is as wanted, and its status is %+v", w.Spec.Name, st)
		}
	}
	if len(l.slivers) != slivers || len(l.state.Ports) != ports || len(l.areas) != len(l.wanted) ||
		len(l.runs) != programs {
		t.Fatalf("%d slivers, %d ports, %d areas, %d programs; want %d, %d, %d, %d", len(l.slivers),
			len(l.state.Ports), len(l.areas), len(l.runs), slivers, ports, len(l.wanted), programs)
	}
}

// checkProgram wants a program that knows its node's ports, as they are now, in the order of its interfaces.
func (l *loop) checkProgram(t require, s *slice.Slice, n *slice.Node) {
	t.Helper()
	is := l.runs[plan.NodeID{Slice: s.ID, Node: n.Name}.ProgramName()]
	want := wire.ProgramState{
		Digest:   plan.Digest(n.Program.Object, n.Program.Filters, n.Program.SlowPath),
		Runs:     true,
		Verified: len(s.Programs[n.Program.Object]),
	}
	for i, name := range n.Program.Interfaces {
		port := l.state.Ports[slice.PortName(s.ID, n.Interface(name).Port)]
		if port.Peer != "" || port.Switch != "" {
			want.Ports = append(append(want.Ports, make([]int, i-len(want.Ports))...), port.Index)
		}
	}
	if diff := cmp.Diff(want, is, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the program of %s of %s: %s", n.Name, s.Name, diff)
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
	name := rapid.SampledFrom([]string{"h1", "h2", "h3", "p1", "p2", "s1", "s2", "u1"})
	objects := rapid.SampledFrom([]string{"a program", "a newer program"})
	ends := rapid.SliceOfNDistinct(name, 2, 3, rapid.ID[string])
	powers := rapid.SampledFrom([]slice.Power{"", "", slice.PowerOff, slice.PowerFrozen})
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
		w := &plan.Input{Spec: s, Overrides: slice.Overrides{
			Power: map[string]slice.Power{}, Down: map[string]bool{}, Restarts: map[string]int{},
		}}
		for i := range s.Nodes {
			n := &s.Nodes[i]
			w.Overrides.Power[n.Name] = powers.Draw(t, "power")
			w.Overrides.Restarts[n.Name] = rapid.IntRange(0, 1).Draw(t, "restarts")
			if n.Kind == slice.Host && rapid.Bool().Draw(t, "router") {
				n.Kind = slice.Router
			}
			if n.Kind == slice.Program {
				plantest.SetProgram(s, n.Name, objects.Draw(t, "object"))
				slices.Reverse(n.Program.Interfaces) // any order
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
	fates := rapid.SampledFrom([]outcome{succeeds, succeeds, succeeds, fails, failsAfter, failsHalf})
	script := rapid.SliceOfN(fates, 0, 30).Draw(t, "fates")
	// Beyond the script, most often: of a pass without failures.
	killAt := int64(rapid.IntRange(0, 60).Draw(t, "killed at"))
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
			// An area is prepared anew by each agent: its files may be those of another version.
			if step != "prepare slice" {
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
	d := drive.Pass{Driver: l.agent.driver, Want: &plan.Wanted{}, Seen: &observe.Snapshot{}, Running: t.Context()}
	for kind := plan.KindHostNet; kind <= plan.KindBoot; kind++ {
		act := reconcile.Action{Op: reconcile.OpCreate, Key: reconcile.Key{Kind: kind, Slice: 1, Name: "x"}}
		if err := d.Do(t.Context(), act); err == nil {
			t.Errorf("%s: no error", plan.KindName(kind))
		}
	}
	if !l.isEmpty() || l.agent.machine.Network() != nil {
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
			delete(l.wanted, "lab1")
			l.deleting["lab1"] = 1
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

func TestLoopTellsOfAFailureOnceUntilItsCauseChanges(t *testing.T) {
	l := newLoop(t)
	l.wanted["lab1"] = &plan.Input{Spec: plantest.Slice(1, []string{"h1", "h2"})}
	l.load()
	act := reconcile.Action{Op: reconcile.OpCreate, Key: reconcile.Key{Kind: plan.KindSliver, Slice: 1, Name: "h1"}}
	for _, cause := range []string{"no image", "no image", "no space", "no space", "no image"} {
		l.agent.noteAction(act, errors.New(cause))
	}
	var told []string
	for _, e := range l.events.Recent(0) {
		told = append(told, e.Message)
	}
	if want := []string{"no image", "no space", "no image"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// A user who asks anew for a network that has settled without one of its nodes, and then looks, must not find that as
// the outcome.
func TestLoopReportsARetryOfWhatHasSettledBeforeRetryReturns(t *testing.T) {
	l := newLoop(t)
	l.wanted["lab1"] = &plan.Input{Spec: plantest.Slice(1, []string{"h1", "h2"})}
	l.settle(t)
	for len(l.agent.wakes) > 0 {
		<-l.agent.wakes
	}
	if l.agent.Retry(t.Context(), "lab1"); !l.statuses["lab1"].Settled || len(l.agent.wakes) != 1 {
		t.Error("nothing had failed, and it is not settled any more, or no pass is due")
	}
	l.agent.failures.Exited(1, "h1", time.Now())
	if l.agent.Retry(t.Context(), "lab1"); l.statuses["lab1"].Settled {
		t.Error("a node is to be started again, and it is settled")
	}
	h1 := reconcile.Key{Kind: plan.KindSliver, Slice: 1, Name: "h1"}
	if l.agent.failures.Holds(h1, time.Now()) {
		t.Error("asked for anew, it is still held back")
	}
}
