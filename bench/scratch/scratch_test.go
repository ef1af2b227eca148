package scratch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestCollectRemovesUnlockedDirectories(t *testing.T) {
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	pattern := filepath.Join(dir, "run-*")
	held, err := New(pattern)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(dir, "run-1")
	if err := os.Mkdir(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := wire.Open(t.Context(), wire.Config{StateDir: killed})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // as if it had died: all of it stays
		t.Fatal(err)
	}
	if err := Collect(t.Context(), pattern, HostNetwork); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(killed); !errors.Is(err, os.ErrNotExist) || wire.Present(killed) {
		t.Errorf("what was left is still there: %v", err)
	}
	if _, err := os.Lstat(held.Path); err != nil {
		t.Errorf("what is in use was removed: %v", err)
	}
	if err := held.Remove(); err != nil {
		t.Error(err)
	}
}

func TestCollectKeepsWhatCannotBeClearedUp(t *testing.T) {
	pattern := filepath.Join(t.TempDir(), "run-*")
	d, err := New(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.lock.Close(); err != nil { // killed
		t.Fatal(err)
	}
	fails := errors.New("it does not go")
	if err := Collect(t.Context(), pattern, func(context.Context, string) error {
		return fails
	}); !errors.Is(err, fails) {
		t.Errorf("Collect = %v, want %v", err, fails)
	}
	if _, err := os.Lstat(d.Path); err != nil {
		t.Errorf("the next cannot try again: %v", err)
	}
	if err := Collect(t.Context(), pattern, func(context.Context, string) error { return nil }); err != nil {
		t.Errorf("the next: %v", err)
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
