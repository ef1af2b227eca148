package sliver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

func TestBindsShowTheMachinesPaths(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	dir := t.TempDir()
	for _, sub := range []string{"data/inner", "other", "other/disk"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"file": "alone", "data/inner/word": "deep", "other/word": "linked"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", filepath.Join(dir, "other/disk"), "tmpfs", 0, "mode=777"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(dir, "other/disk"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := spec("denver")
	s.Binds = []slice.Bind{
		{Source: dir + "/data", Target: "/data"},
		{Source: dir + "/link", Target: "/mnt/linked", ReadOnly: true},
		{Source: dir + "/file", Target: "/srv/file", ReadOnly: true},
	}
	s.Beneath = map[string]string{dir + "/data": dir, dir + "/link": dir}
	id, _ := up(t, r, s)
	const probe = `cat /data/inner/word /mnt/linked/word /srv/file; echo mine >/data/inner/new && echo written
echo no >/mnt/linked/new || echo refused
echo no >/mnt/linked/disk/new || echo refused
echo no >/srv/file || echo refused`
	const want = "deep\nlinked\nalone\nwritten\nrefused\nrefused\nrefused"
	if got := sh(t, r, id, "{ "+probe+"; } 2>/dev/null"); strings.TrimSpace(got) != want {
		t.Errorf("inside: %q, want %q", got, want)
	}
	if text, err := os.ReadFile(dir + "/data/inner/new"); err != nil || string(text) != "mine\n" {
		t.Errorf("on the machine: %q, %v", text, err)
	}
}
