package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/failures"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func TestLastLineIsBounded(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"": "", "one\n": ": one", "one\ntwo\n\n": ": two", "a\xff": ": a",
		strings.Repeat("x", 1<<20): ": " + strings.Repeat("x", 200),
	} {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastLine(log); got != want {
			t.Errorf("of %.20q: %.20q, want %.20q", text, got, want)
		}
	}
	if err := os.Truncate(log, 1<<40); err != nil { // a node can make its log as long as it likes
		t.Fatal(err)
	}
	if got := lastLine(log); len(got) > 202 {
		t.Errorf("%d bytes of a log of a terabyte", len(got))
	}
}

func TestEndForWantOfMemoryIsToldAsThat(t *testing.T) {
	for _, c := range []struct {
		code int
		oom  bool
		want string
	}{
		{137, true, "it needed more than its `memory: 64MiB`"},
		{-1, true, "it needed more than its `memory: 64MiB`"}, // nobody watched
		{137, false, "its first process was ended by signal 9"},
		{1, true, "its first process ended with status 1"}, // another one was killed, and it went on
		{-1, false, "its first process ended"},
	} {
		if got := exitMessage(sliver.Observed{ExitCode: c.code, OutOfMemory: c.oom}, 64<<20); got != c.want {
			t.Errorf("status %d, out of memory %v: %q, want %q", c.code, c.oom, got, c.want)
		}
	}
}

// silent is a store that does not answer twice whether all hosts have settled.
type silent struct {
	*store.Store
	asked int
}

func (s *silent) SettledBy(_ context.Context, host, name string) (bool, error) {
	if s.asked++; s.asked < 3 {
		return false, errors.New("no answer")
	}
	return host == "h1" && name == "lab", nil
}

// newReports gives the reports of host h1 to a store.
func newReports(t *testing.T, to Store, bus *events.Bus) *Reports {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return New(Config{
		Host: "h1", Store: to, Contact: store.NewContact(log), Inputs: inputs.New(inputs.Config{Host: "h1"}),
		Events: bus, Log: log,
		LogPath: func(string, string) string { return "" }, Trouble: func(sliver.ID) string { return "" },
		Ports: func(sliver.ID) string { return "" },
		Wake:  func() {},
	})
}

// The store takes the report, and then does not say for a while whether the other hosts have settled too.
func TestThatASliceSettledIsSaidThoughTheStoreFailsOnce(t *testing.T) {
	bus := events.NewBus(10)
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.PutSlice(t.Context(), &slice.Slice{Name: "lab", ID: 1, Generation: 1}, 0); err != nil {
		t.Fatal(err)
	}
	to := &silent{Store: s}
	r := newReports(t, to, bus)
	r.reports["lab"] = &report{
		status: slice.Status{Slice: "lab", Generation: 1, Settled: true}, fresh: true, settles: true,
	}
	r.Write(t.Context())
	testkit.Eventually(t, func() error {
		r.Write(t.Context())
		if len(bus.Recent(0)) == 0 {
			return fmt.Errorf("asked %d times, and nothing was said", to.asked)
		}
		return nil
	}, time.Minute, "what settled to be said")
	r.Write(t.Context())
	if all := bus.Recent(0); len(all) != 1 || all[0].Kind != events.SliceSettled || to.asked != 3 {
		t.Errorf("asked %d times, said %+v", to.asked, all)
	}
}

// A node that runs lacks a port that another one has: its status and one event say so.
func TestAPortThatAnotherNodeHasIsToldOnce(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"})
	s.Name = "lab"
	port := slice.HostPort{Protocol: slice.TCP, Port: 8001}
	w := plan.Input{Spec: s, Lost: plan.Lost{"h1": {port: "other/x"}}}
	bus := events.NewBus(10)
	r := newReports(t, nil, bus)
	at := plan.Place{Host: "h1"}
	want, _ := plan.New(at, []plan.Input{w})
	p := &Pass{At: at, Want: want, Failures: &failures.Failures{}, Seen: &observe.Snapshot{
		Slivers: map[sliver.ID]sliver.Observed{{Slice: 7, Node: "h1"}: {State: sliver.Running}},
	}}
	const why = "port tcp/8001, which it reserved while it ran, is reserved for other/x"
	for range 2 {
		r.updateLocked(p, &w, 0)
	}
	got := r.reports["lab"].status.Nodes["h1"]
	if got.Phase != slice.Running || !strings.HasPrefix(got.Message, why) {
		t.Errorf("%+v", got)
	}
	told := 0
	for _, e := range bus.Recent(0) {
		if e.Node == "h1" && e.Kind == events.Failed && strings.HasPrefix(e.Message, why) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %+v", told, bus.Recent(0))
	}
}

// Another host starts a node that was here when this one reports the generation in which it was moved.
func TestAGenerationIsReportedWhenWhatWasMovedAwayIsGone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	s.Generation = 5
	w := plan.Input{Spec: s}
	r := newReports(t, nil, nil)
	at := plan.Place{
		Host: "A", Address: plantest.Hosts["A"], Peers: map[string]netip.Addr{"B": plantest.Hosts["B"]},
	}
	want, _ := plan.New(at, []plan.Input{w})
	h2 := map[sliver.ID]sliver.Observed{{Slice: 7, Node: "h2"}: {State: sliver.Running}}
	p := &Pass{At: at, Want: want, Seen: &observe.Snapshot{Slivers: h2}, Failures: &failures.Failures{}}
	before := &report{status: slice.Status{Generation: 4}}
	if got := r.status(p, &w, before); got.Generation != 4 {
		t.Errorf("h2 is still here: generation %d, want 4", got.Generation)
	}
	clear(h2)
	got := r.status(p, &w, before)
	if _, tells := got.Nodes["h2"]; got.Generation != 5 || tells || len(got.Nodes) != 1 || len(got.Links) != 1 {
		t.Errorf("h2 is gone: %+v", got)
	}
}
