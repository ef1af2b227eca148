package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func TestLastWordsAreBounded(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"": "", "one\n": ": one", "one\ntwo\n\n": ": two", "a\xff": ": a", strings.Repeat("x", 1<<20): ": " + strings.Repeat("x", 200),
	} {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(log); got != want {
			t.Errorf("of %.20q: %.20q, want %.20q", text, got, want)
		}
	}
	if err := os.Truncate(log, 1<<40); err != nil { // a node can make its log as long as it likes
		t.Fatal(err)
	}
	if got := lastWords(log); len(got) > 202 {
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
	st := slice.Status{Slice: "lab", Generation: 1, Settled: true}
	a := &Agent{
		cfg: Config{Host: "h1", Events: bus, Store: s}, contact: contact{log: slog.New(slog.DiscardHandler)},
		reports: map[string]*report{"lab": {status: st, fresh: true, settles: true}},
	}
	asked := 0
	a.settledBy = func(_ context.Context, host, name string) (bool, error) {
		if asked++; asked < 3 {
			return false, errors.New("no answer")
		}
		return host == "h1" && name == "lab", nil
	}
	a.writeReports(t.Context())
	testkit.Eventually(t, func() error {
		a.writeReports(t.Context())
		if len(bus.Recent(0)) == 0 {
			return fmt.Errorf("asked %d times, and nothing was said", asked)
		}
		return nil
	}, time.Minute, "what settled to be said")
	a.writeReports(t.Context())
	if all := bus.Recent(0); len(all) != 1 || all[0].Kind != events.SliceSettled || asked != 3 {
		t.Errorf("asked %d times, said %+v", asked, all)
	}
}

func TestFailureIsToldOnceUntilTheCauseChanges(t *testing.T) {
	bus := events.NewBus(10)
	a := &Agent{cfg: Config{Events: bus}, reports: make(map[string]*report), wishes: map[string]*plan.Input{"lab": {Spec: &slice.Slice{Name: "lab", ID: 1}}}}
	a.cfg.Log = slog.New(slog.DiscardHandler)
	a.metrics = newMetrics()
	act := reconcile.Action{Op: reconcile.OpCreate, Key: reconcile.Key{Kind: plan.KindSliver, Slice: 1, Name: "a"}}
	for _, cause := range []string{"no image", "no image", "no space", "no space", "no image"} {
		a.noteAction(act, errors.New(cause))
	}
	var told []string
	for _, e := range bus.Recent(0) {
		told = append(told, e.Message)
	}
	if want := []string{"no image", "no space", "no image"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// Who asks anew for a network that has settled without one of its nodes, and then looks, must not find that as the
// outcome.
func TestRetryOfWhatHasSettledIsReportedBeforeItReturns(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), LogFile: filepath.Join(t.TempDir(), "etcd.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	spec := &slice.Slice{Name: "lab", Nodes: []slice.Node{{Name: "a"}}}
	if err := s.PutSlice(t.Context(), spec, 0); err != nil {
		t.Fatal(err)
	}
	a := &Agent{
		cfg:   Config{Host: "here", Store: s, Events: events.NewBus(10), Log: slog.New(slog.DiscardHandler)},
		nudge: make(chan struct{}, 1), wishes: map[string]*plan.Input{"lab": {Spec: spec}},
		reports: map[string]*report{"lab": {status: slice.Status{Slice: "lab", Generation: 1, Settled: true, Done: 7, Total: 7}, fresh: true}},
	}
	settled := func() bool {
		t.Helper()
		st, err := s.Status(t.Context(), "lab")
		if err != nil || st.Generation != 1 {
			t.Fatalf("got %+v, %v", st, err)
		}
		return st.Settled
	}
	a.writeReports(t.Context())
	if a.Retry(t.Context(), "lab"); !settled() || len(a.nudge) != 1 {
		t.Error("nothing had failed, and it is not settled any more, or nobody looks")
	}
	node := reconcile.Key{Kind: plan.KindSliver, Slice: spec.ID, Name: "a"}
	a.crashes.Fail(node, time.Now(), errExited)
	if a.Retry(t.Context(), "lab"); settled() {
		t.Error("a node is to be started again, and it is settled")
	}
	if a.crashes.Holds(node, time.Now()) {
		t.Error("asked for anew, it is still held back")
	}
}
