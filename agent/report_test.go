package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/agent/reconcile"
	"github.com/pergola-net/pergola/events"
	"github.com/pergola-net/pergola/slice"
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

func TestFailureIsToldOnceUntilTheCauseChanges(t *testing.T) {
	bus := events.NewBus(10)
	a := &Agent{cfg: Config{Events: bus}, reports: make(map[string]*report), wishes: map[string]*wish{"lab": {spec: &slice.Slice{Name: "lab", ID: 1}}}}
	a.cfg.Log = slog.New(slog.DiscardHandler)
	a.metrics = newMetrics()
	act := reconcile.Action{Op: reconcile.OpCreate, Key: reconcile.Key{Kind: kindSliver, Slice: 1, Name: "a"}}
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
	a.noteAction(act, nil)
	a.noteAction(act, errors.New("no image"))
	a.nudge = make(chan struct{}, 1)
	a.Retry("lab")
	if _, cause := a.backoff.Failures(act.Key); cause != nil || len(a.nudge) != 1 {
		t.Errorf("asked for anew, it still holds back for %v", cause)
	}
}
