package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

func TestASilentStoreIsToldOfOnceAndOnceMoreWhenItAnswers(t *testing.T) {
	var log bytes.Buffer
	c := contact{log: slog.New(slog.NewTextHandler(&log, nil))}
	silence := errors.New("no answer within 10s")
	for _, err := range []error{
		nil, context.Canceled, fmt.Errorf("lab: %w", store.ErrNotFound), // nothing is wrong
		silence, silence, context.Canceled, silence,
		fmt.Errorf("lab: %w", store.ErrDeleting), nil,
	} {
		c.note(err)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "does not answer") || !strings.Contains(log.String(), "answers again") {
		t.Errorf("log:\n%s", log.String())
	}
}

// Another host starts a node that was here when this one reports the generation in which it was moved.
func TestAGenerationIsReportedWhenWhatWasMovedAwayIsGone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	s.Generation = 5
	w := plan.Input{Spec: s}
	a := &Agent{cfg: Config{Host: "A"}, fast: newFastPath(slog.New(slog.DiscardHandler))}
	want, _ := plan.New(placeOf("A"), []plan.Input{w})
	seen := newSight()
	r := &report{status: slice.Status{Generation: 4}}
	seen.slivers[sliver.ID{Slice: 7, Node: "h2"}] = sliver.Observed{State: sliver.Running}
	if got := a.statusLocked(&w, want, seen, r); got.Generation != 4 {
		t.Errorf("h2 is still here: generation %d, want 4", got.Generation)
	}
	clear(seen.slivers)
	got := a.statusLocked(&w, want, seen, r)
	if _, tells := got.Nodes["h2"]; got.Generation != 5 || tells || len(got.Nodes) != 1 || len(got.Links) != 1 {
		t.Errorf("h2 is gone: %+v", got)
	}
}

// An agent that is started without a store knows by its mark alone what the fence ends: no process of the node may run
// before the mark is there.
func TestANewSliverBearsTheMarkOfTheFence(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "A"})
	key := reconcile.Key{Kind: plan.KindSliver, Slice: 7, Name: "h1"}
	before, _ := plan.New(placeOf("A"), []plan.Input{{Spec: s}})
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	after, _ := plan.New(placeOf("A"), []plan.Input{{Spec: s}})
	was, is := before.Detail(key).(plan.Sliver), after.Detail(key).(plan.Sliver)
	if was.Notes[plan.FenceNote] != "" || is.Notes[plan.FenceNote] == "" {
		t.Errorf("marks %v, then %v", was.Notes, is.Notes)
	}
	if was.Digest != is.Digest {
		t.Error("another policy makes the sliver anew")
	}
}

func placeOf(host string) plan.Place {
	peers := maps.Clone(plantest.Hosts)
	delete(peers, host)
	return plan.Place{Host: host, Joined: host != "A", Address: plantest.Hosts[host], Peers: peers}
}

func TestTheWatchdogIsCalledForNodesThatMayStartElsewhereAlone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	all := []plan.Input{{Spec: s}}
	here, fenced := placeOf("A"), placeOf("A")
	fenced.Fenced = true
	if marks(here, all) {
		t.Error("no node may start elsewhere")
	}
	s.Node("h2").Placement.Reschedule = slice.RescheduleAlways
	if marks(here, all) {
		t.Error("the one that may is on another host")
	}
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	if !marks(here, all) || marks(fenced, all) {
		t.Error("h1 may, and is here unless the fence is closed")
	}
}
