package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/host/member/membertest"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/lab/testkit"
)

// stand makes a process look like a node of a state directory, with or without the mark of the fence.
func stand(t *testing.T, state, node, mark string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	dir := filepath.Join(state, "slices", "1", "nodes", node)
	record := map[string]any{
		"process": map[string]any{"pid": cmd.Process.Pid, "start": json.Number(fields[19])},
		"notes":   map[string]string{plan.FenceNote: mark, "other": "x"},
	}
	data, err := json.Marshal(record)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sliver.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

func marked(state string) Marked {
	return Marked{
		End: func() (int, error) { return sliver.EndMarked(state, plan.FenceNote) },
		Has: func() (bool, error) { return sliver.HasMarked(state, plan.FenceNote) },
	}
}

func lives(cmd *exec.Cmd) bool { return cmd.Process.Signal(syscall.Signal(0)) == nil }

// ended waits for a process that is to be killed.
func ended(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("it lives")
	}
}

func TestTheWatchdogEndsWhatMayStartElsewhereWhenNobodyRenewsTheLease(t *testing.T) {
	state := t.TempDir()
	dog := Watchdog{StateDir: state, Log: slog.New(slog.DiscardHandler)}
	l := membertest.NewLease()
	dog.Post(l)
	mover, stayer := stand(t, state, "mover", "always"), stand(t, state, "stayer", "")
	done := make(chan error, 1)
	go func() { done <- RunWatchdog(t.Context(), state, marked(state), slog.New(slog.DiscardHandler)) }()
	if until, err := postedUntil(state); err != nil || until <= uptime()+50*time.Minute {
		t.Errorf("posted until %v, %v", until, err)
	}
	select {
	case err := <-done:
		t.Fatalf("it went while a node was there: %v", err)
	case <-time.After(2 * watchdogLook): // it has looked
	}
	if !lives(stayer) || !lives(mover) {
		t.Error("nodes were ended while the lease held")
	}
	l.EndIn(fenceMargin / 2)
	dog.Post(l)
	ended(t, mover)
	if !lives(stayer) {
		t.Error("it ended a node that starts nowhere else")
	}
	if err := <-done; err != nil { // nothing is left for it
		t.Error(err)
	}
}

func TestOneWatchdogIsCalled(t *testing.T) {
	state := t.TempDir()
	dog := Watchdog{
		StateDir: state, LogDir: state, Command: []string{"/bin/sh", "-c", "read -r line < $0/fence/quit"},
		Log: slog.New(slog.DiscardHandler),
	}
	if err := os.MkdirAll(fenceDir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	quit := filepath.Join(fenceDir(state), "quit")
	if out, err := exec.Command("mkfifo", quit).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 3 {
		if err := dog.Call(); err != nil {
			t.Fatal(err)
		}
	}
	if free, err := takeLock(state); free != nil || err != nil {
		t.Fatalf("the lock is free while the watchdog runs: %v", err)
	}
	f, err := os.OpenFile(quit, os.O_WRONLY, 0)
	if err == nil {
		err = f.Close() // the watchdog reads to the end, and ends
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		free, err := takeLock(state)
		if err == nil && free == nil {
			err = context.DeadlineExceeded
		}
		if free != nil {
			free.Close()
		}
		return err
	}, time.Minute, "the lock to be free")
}

func TestAWatchdogThatIsCalledAgainStays(t *testing.T) {
	state := t.TempDir()
	done := make(chan error, 1)
	go func() { done <- RunWatchdog(t.Context(), state, marked(state), slog.New(slog.DiscardHandler)) }()
	for began := uptime(); uptime()-began < 2*watchdogLinger; {
		f, err := takeLock(state)
		if f == nil || err != nil {
			t.Fatalf("%v, %v", f, err)
		}
		f.Close()
		select {
		case err := <-done:
			t.Fatalf("it went after %v, while it was called: %v", uptime()-began, err)
		case <-time.After(watchdogLinger / 4):
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// One record that cannot be read does not save the others' nodes.
func TestTheWatchdogEndsWhatItCanRead(t *testing.T) {
	state := t.TempDir()
	mover := stand(t, state, "mover", "always")
	bad := filepath.Join(state, "slices", "1", "nodes", "bad")
	if err := os.MkdirAll(bad, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, "sliver.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := sliver.EndMarked(state, plan.FenceNote)
	if n != 1 || err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("%d ended, %v", n, err)
	}
	ended(t, mover)
}

// A record that stays unreadable does not fill the disk with log lines.
func TestTheWatchdogLogsOnceWhatItCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where seconds pass at once
		state := t.TempDir()
		record := func(node, text string) {
			t.Helper()
			dir := filepath.Join(state, "slices", "1", "nodes", node)
			file := filepath.Join(dir, "sliver.json")
			err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(text), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
		record("bad", "{")
		if err := os.MkdirAll(filepath.Join(fenceDir(state), "until"), 0o755); err != nil { // no file
			t.Fatal(err)
		}
		logged := make(chan string, 1000)
		log := slog.New(slog.NewTextHandler(lines(logged), nil))
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- RunWatchdog(ctx, state, marked(state), log) }()
		first := []string{<-logged, <-logged}
		if all := strings.Join(first, ""); !strings.Contains(all, "until: is a directory") ||
			!strings.Contains(all, "bad/sliver.json") {
			t.Errorf("logged: %s", all)
		}
		select {
		case repeated := <-logged:
			t.Errorf("logged again: %s", repeated)
		case <-time.After(3 * watchdogLook): // it has looked again and again
		}
		record("worse", "[")
		if more := <-logged; !strings.Contains(more, "worse/sliver.json") {
			t.Errorf("of another one it logs %s", more)
		}
		leave()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// lines hands each line of a log on.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
