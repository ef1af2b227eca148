package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
)

const twoRouters = "name: lab\nnodes: {a: {routing: ospf}, b: {routing: ospf}}\nlinks: [[a, b]]\n"

// wantDone fails where a command failed.
func wantDone(t *testing.T, o outcome) outcome {
	t.Helper()
	if o.status != 0 {
		t.Fatal(o)
	}
	return o
}

// byHand is a world with a network of which one router was configured by hand.
func byHand(t *testing.T) (w *world, file string) {
	t.Helper()
	w = newWorld(t)
	t.Chdir(t.TempDir())
	file = filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(twoRouters), 0o644); err != nil {
		t.Fatal(err)
	}
	wantDone(t, pergola(t, "up", file))
	w.set(func(h *host) {
		h.changes = []api.NodeChanges{{
			Node: "a", Routing: true, Config: map[string][]byte{"frr.conf": []byte("router ospf\n")},
			Difference: []string{"+ router ospf / redistribute static"},
		}}
	})
	return w, file
}

func TestSaveWritesATopologyThatComesUp(t *testing.T) {
	byHand(t)
	shown := wantDone(t, pergola(t, "save", "lab", "--diff"))
	if !strings.Contains(shown.out, "changed: node a: its routing configuration\n") ||
		!strings.Contains(shown.out, "a + router ospf / redistribute static\n") {
		t.Error(shown)
	}
	if _, err := os.Stat("lab-saved"); !os.IsNotExist(err) {
		t.Errorf("--diff wrote something: %v", err)
	}
	said := wantDone(t, pergola(t, "save", "lab"))
	if !strings.Contains(said.errs, "lab-saved/topology.yaml written, with 1 change: `pergola up") {
		t.Error(said)
	}
	if conf, err := os.ReadFile("lab-saved/nodes/a/frr.conf"); err != nil || string(conf) != "router ospf\n" {
		t.Errorf("the configuration is %q, %v", conf, err)
	}
	plan := wantDone(t, pergola(t, "up", "lab-saved/topology.yaml", "--dry-run"))
	if !strings.Contains(plan.out, "node a") || strings.Contains(plan.out, "node b") {
		t.Error(plan)
	}
	if again := pergola(t, "save", "lab"); again.status == 0 || !strings.Contains(again.errs, "--replace") {
		t.Error(again)
	}
}

func TestSaveWantsToKnowOfAllNodes(t *testing.T) {
	w, _ := byHand(t)
	w.set(func(h *host) { h.changes[0] = api.NodeChanges{Node: "a", Unknown: "it is paused"} })
	o := pergola(t, "save", "lab")
	if o.status == 0 || !strings.Contains(o.errs, "unknown: node a: it is paused") {
		t.Error(o)
	}
	if _, err := os.Stat("lab-saved"); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
	wantDone(t, pergola(t, "save", "lab", "--partial"))
}

// No question is asked where nobody is at a terminal.
func TestWhatIsLostIsSaidBefore(t *testing.T) {
	const words = "warning: changed while it ran, and lost now: a (running configuration)"
	_, file := byHand(t)
	if o := wantDone(t, pergola(t, "restart", "b")); strings.Contains(o.errs, "lost") {
		t.Error(o)
	}
	if o := wantDone(t, pergola(t, "up", file)); strings.Contains(o.errs, "lost") {
		t.Errorf("nothing changes: %v", o)
	}
	changed := strings.Replace(twoRouters, "a: {", "a: {memory: 64MiB, ", 1)
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"node", "restart", "a"}, {"up", file}, {"down", "lab"}} {
		o := wantDone(t, pergola(t, args...))
		if !strings.Contains(o.errs, words) || !strings.Contains(o.errs, "`pergola save lab`") {
			t.Errorf("%v: %v", args, o)
		}
	}
}

func TestSavedImagesThatAreUnusedArePruned(t *testing.T) {
	byHand(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	path := filepath.Join(cache, "pergola", "images", "1.tar")
	old := time.Now().Add(-365 * 24 * time.Hour)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, 1024), 0o600),
		os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	o := wantDone(t, pergola(t, "prune", "--dry-run"))
	if !strings.Contains(o.out, path) || !strings.Contains(o.errs, "1 saved image would be removed, 1 KiB") {
		t.Error(o)
	}
	if o := wantDone(t, pergola(t, "prune")); !strings.Contains(o.errs, "1 saved image removed, 1 KiB") {
		t.Error(o)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image is there: %v", err)
	}
}

func TestVolumesAreRemovedWithTheirNetworkOrLater(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	w, file := byHand(t)
	w.be(controller.Caller{Root: true, Local: true})
	w.set(func(h *host) {
		h.changes = nil
		h.volumes = []api.Volume{{Slice: "lab", Node: "a", Name: "data", Bytes: 4096},
			{Slice: "gone", Node: "x", Name: "data", Bytes: 1024}}
	})
	if o := wantDone(t, pergola(t, "prune", "--dry-run")); !strings.Contains(o.out, " unused") ||
		!strings.Contains(o.out, " used") {
		t.Error(o)
	}
	if o := wantDone(t, pergola(t, "prune")); !strings.Contains(o.errs, "1 volume removed, 1 KiB") {
		t.Error(o)
	}
	o := wantDone(t, pergola(t, "prune"))
	if !strings.Contains(o.errs, "there is no volume of a network that is gone") {
		t.Error(o)
	}
	if o := wantDone(t, pergola(t, "down", "lab", "--volumes")); !strings.Contains(o.errs,
		"volume data of lab/a is removed") {
		t.Error(o)
	}
	wantDone(t, pergola(t, "up", file))
	w.be(controller.Caller{UID: 1000})
	if o := pergola(t, "prune"); o.status == 0 || !strings.Contains(o.errs, "only root") {
		t.Error(o)
	}
}

func TestAQuestionEndsWithCtrlC(t *testing.T) {
	in, typed := io.Pipe() // on which nobody types
	defer typed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said strings.Builder
	a := &app{Terminal: ui.New(in, io.Discard, &said)}
	yes, err := a.ask(ctx, "Go on? ")
	if yes || ui.Code(err) != ui.ExitInterrupted || said.String() != "Go on? \n" {
		t.Errorf("%t, %v, said %q", yes, err, said.String())
	}
}

func TestOnlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "no\n": false, "y": false} {
		a := &app{Terminal: ui.New(strings.NewReader(answer), io.Discard, io.Discard)}
		if yes, err := a.ask(t.Context(), "Go on? "); yes != want || err != nil {
			t.Errorf("%q: %t, %v", answer, yes, err)
		}
	}
}

// The network stays up where its volumes cannot be removed with it.
func TestOnlyRootTakesVolumesDown(t *testing.T) {
	w, _ := byHand(t)
	w.be(controller.Caller{UID: 1000})
	if os.Geteuid() == 0 {
		if err := syscall.Seteuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Seteuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	o := pergola(t, "down", "lab", "--volumes")
	if o.status != 1 || !strings.Contains(o.errs, "only root can remove volumes") ||
		strings.Contains(o.errs, "is down") {
		t.Error(o)
	}
}
