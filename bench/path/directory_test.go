package path

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/test/testkit"
)

func TestCollectRemovesWhatNobodyHolds(t *testing.T) {
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	t.Setenv("TMPDIR", dir)
	held, err := newDirectory()
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(dir, "pgpath-1")
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
	if err := collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(killed); !errors.Is(err, os.ErrNotExist) || wire.Present(killed) {
		t.Errorf("what was left is still there: %v", err)
	}
	if _, err := os.Lstat(held.path); err != nil {
		t.Errorf("what is in use was removed: %v", err)
	}
	if err := held.remove(); err != nil {
		t.Error(err)
	}
}
