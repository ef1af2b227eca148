package sliver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

func TestVolumeOutlivesItsSliver(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Volumes = []slice.Volume{
		{Name: "data", Target: "/srv/data"},
		{Name: "fixed", Target: "/srv/fixed", ReadOnly: true},
	}
	id, _ := up(t, r, s)
	sh(t, r, id, "echo kept >/srv/data/word && chown 33:34 /srv/data/word && chown 7 /srv/data")
	if got := sh(t, r, id, "touch /srv/fixed/x 2>/dev/null || echo refused"); strings.TrimSpace(got) != "refused" {
		t.Errorf("a volume that is read-only was written: %q", got)
	}
	if err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	id, _ = up(t, r, s)
	got := sh(t, r, id, "cat /srv/data/word; stat -c %u:%g /srv/data/word; stat -c %u /srv/data")
	if strings.TrimSpace(got) != "kept\n33:34\n7" {
		t.Errorf("the volume has %q", got)
	}
	if err := r.RemoveVolumes(s.SliceName); err == nil {
		t.Error("volumes of a slice that is here were removed")
	}
	all, err := r.Volumes()
	if err != nil || len(all) != 2 || all[0].Node != "denver" || all[0].Name != "data" || all[0].Bytes == 0 {
		t.Errorf("the volumes are %+v, %v", all, err)
	}
	if err := r.RemoveSlice(t.Context(), id.Slice); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveVolumes(s.SliceName); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(r.cfg.VolumeDir); err != nil || len(entries) != 0 {
		t.Errorf("after their removal: %+v, %v", entries, err)
	}
}

// A crash can end the removal of volumes: what is left is no volume of a slice, and goes when a runtime starts.
func TestVolumesThatAreHalfRemovedGo(t *testing.T) {
	r := newRuntime(t)
	half := filepath.Join(r.cfg.VolumeDir, asidePrefix+"lab", "a", "data")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if all, err := r.Volumes(); err != nil || len(all) != 0 {
		t.Errorf("half removed volumes are listed: %+v, %v", all, err)
	}
	openRuntime(t, filepath.Dir(r.cfg.VolumeDir))
	if entries, err := os.ReadDir(r.cfg.VolumeDir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A slice may have another id, and so other users, each time that it is made.
func TestVolumeFollowsItsSlicesUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, old, base := t.TempDir(), uidBase(3), uidBase(8)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]int{"": 5, "sub": 0, "sub/file": 33, "link": 1} {
		if err := os.Lchown(filepath.Join(dir, name), old+id, old+id); err != nil {
			t.Fatal(err)
		}
	}
	if err := shiftTree(dir, base); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]int{"": 5, "sub": 0, "sub/file": 33, "link": 1} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil || int(st.Uid) != base+id ||
			int(st.Gid) != base+id {
			t.Errorf("%q belongs to %d:%d, %v, want %d", name, st.Uid, st.Gid, err, base+id)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(outside, &st); err != nil || st.Uid != 0 {
		t.Errorf("a file outside belongs to %d, %v", st.Uid, err)
	}
}
