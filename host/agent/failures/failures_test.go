package failures

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
)

func TestFailuresOfASliceAndOfTheHostAreItsMessages(t *testing.T) {
	var f Failures
	now := time.Now()
	port := func(slice uint16, name string) reconcile.Key {
		return reconcile.Key{Kind: plan.KindPort, Slice: slice, Name: name}
	}
	for k, cause := range map[reconcile.Key]string{
		port(1, "s1p1"): "no space", port(1, "s1p2"): "no space", plan.HostNetKey: "no BPF",
		port(2, "s2p1"): "of another slice",
	} {
		if before := f.Acted(k, now, errors.New(cause)); before != nil {
			t.Errorf("%v failed before for %v", k, before)
		}
	}
	if got, want := f.Messages(1), []string{"no BPF", "no space"}; !slices.Equal(got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
	if before := f.Acted(port(1, "s1p1"), now, nil); before == nil || before.Error() != "no space" {
		t.Errorf("failed before for %v", before)
	}
	if f.Holds(port(1, "s1p1"), now) {
		t.Error("what succeeded is held back")
	}
	if !f.Reset(1) || f.Reset(1) {
		t.Error("one failure is left, and then none")
	}
}

func TestANodeThatEndsAgainAndAgainIsNotAboutToBeStarted(t *testing.T) {
	var f Failures
	now := time.Now()
	for ends := 1; ends <= mostRestarts; ends++ {
		f.Exited(1, "a", now)
		if got, want := f.Restarting(1, now), map[bool]int{true: 1}[ends < mostRestarts]; got != want {
			t.Errorf("after %d ends, %d nodes are about to be started, want %d", ends, got, want)
		}
	}
	f.Runs(1, "a", now, now.Add(soundAfter))
	if !f.Holds(sliverKey(1, "a"), now) {
		t.Error("its ends are forgotten too early")
	}
	f.Runs(1, "a", now, now.Add(soundAfter+1))
	if f.Holds(sliverKey(1, "a"), now) {
		t.Error("it has run for long enough, and is held back")
	}
}

// The slice is not settled while a node is on probation: the wait ends when that does.
func TestTheWaitEndsWithARestartAndThenWithItsProbation(t *testing.T) {
	var f Failures
	now := time.Now()
	if got := f.Wait(now, time.Minute); got != time.Minute {
		t.Errorf("with no failure, the wait is %v", got)
	}
	f.Exited(1, "a", now)
	first := f.Wait(now, time.Minute)
	if first >= probation || !f.Holds(sliverKey(1, "a"), now.Add(first-1)) ||
		f.Holds(sliverKey(1, "a"), now.Add(first)) {
		t.Errorf("the wait is %v", first)
	}
	now = now.Add(first)
	if got := f.Wait(now, time.Minute); got != probation || f.Restarting(1, now.Add(got-1)) != 1 {
		t.Errorf("the wait for the end of the probation is %v", got)
	}
	if f.Restarting(1, now.Add(probation)) != 0 {
		t.Error("after its probation, it is still about to be started")
	}
}

func TestCauseIsToldAndNotItsConsequences(t *testing.T) {
	var f Failures
	now := time.Now()
	key := func(slice uint16, kind reconcile.Kind, name string) reconcile.Key {
		return reconcile.Key{Kind: kind, Slice: slice, Name: name}
	}
	want := func(messages ...string) {
		t.Helper()
		if got := f.Messages(1); !slices.Equal(got, messages) {
			t.Errorf("messages %q, want %q", got, messages)
		}
	}
	wire, process := key(1, plan.KindWire, "s1p1"), key(1, plan.KindProcess, "a")
	gone := Consequence(fmt.Errorf("join s1p1 and s1p2: %w", errors.New("no such device")))
	_ = f.Acted(wire, now, gone)
	want("join s1p1 and s1p2: no such device") // nothing else is known
	_ = f.Acted(process, now, errors.New("no zebra in /usr/lib/frr"))
	want("no zebra in /usr/lib/frr")
	_ = f.Acted(process, now, nil)
	_ = f.Acted(key(2, plan.KindProcess, "a"), now, errors.New("of another slice"))
	want("join s1p1 and s1p2: no such device")
	f.Exited(1, "a", now) // its status says so
	want()
	if !errors.Is(Consequence(reconcile.ErrSkipped), reconcile.ErrSkipped) {
		t.Error("a consequence hides what it is")
	}
}
