package sliver

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// lost gives a Runtime whose state directory has gone while a sliver runs.
func lost(t *testing.T, dir string) (r *Runtime, p process) {
	t.Helper()
	r, err := New(t.Context(), Config{
		StateDir: filepath.Join(dir, "lost"), LogDir: filepath.Join(dir, "log"),
		BlobDir: filepath.Join(dir, "blobs"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.PrepareSlice(t.Context(), testSlice+1, "lost", nil); err != nil {
		t.Fatal(err)
	}
	s := spec("denver")
	s.Slice = testSlice + 1
	_, pid := up(t, r, s)
	if p, err = findProcess(pid); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := unix.Unmount(r.sliceDir(s.Slice), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	return r, p
}

func TestWhatServersWithoutStateLeftIsRemoved(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	dead, p := lost(t, filepath.Dir(r.cfg.StateDir))
	other := "pergola-00000000" // nobody said whose it is
	if err := r.groups.make(other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.groups.remove(other); err != nil {
			t.Error(err)
		}
	})
	openRuntime(t, filepath.Join(filepath.Dir(r.cfg.StateDir), "next"))
	if p.alive() || exists(r.groups.path(dead.groupRoot())) {
		t.Error("the processes or groups of a server without state are left")
	}
	observe(t, r, id, Running)
	if !exists(r.groups.path(other)) {
		t.Error("somebody else's group is gone")
	}
}
