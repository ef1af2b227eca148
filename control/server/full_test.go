package server

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
)

// The disk keeps some space that etcd itself needs: it dies of a write that fails.
func TestAFullDiskIsExplainedToTheUser(t *testing.T) {
	testkit.Root(t) // mounts a tmpfs
	disk := t.TempDir()
	if err := unix.Mount("pergola-test", disk, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	c, _ := serve(t, func(cfg *Config) { cfg.DataDir = filepath.Join(disk, "lib") })
	up(t, c, pair("before"))

	var fs unix.Statfs_t
	if err := unix.Statfs(disk, &fs); err != nil {
		t.Fatal(err)
	}
	const left = 16 << 20
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, int64(fs.Bavail)*fs.Bsize-left), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(t.Context(), "net", pair("net"), false)
	refused(t, err, http.StatusInsufficientStorage, "store network net: ", "no space left for the store: "+disk,
		" MiB free and ", "make room and try again")
	if slices, err := c.Slices(t.Context()); err != nil || len(slices) != 1 {
		t.Errorf("slices %+v, %v", slices, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	up(t, c, pair("net"))
}
