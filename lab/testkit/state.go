package testkit

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TempState makes a directory for a server's state and removes it when the test ends. Its path is short, because a unix
// socket's path must fit into 108 bytes, which t.TempDir does not ensure, and other users may pass
// through it, as they may through /run.
func TempState(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeState(t, dir) })
	return dir
}

// removeState never walks into a mount that a broken test left: that could be the machine's own root.
func removeState(t testing.TB, dir string) {
	t.Helper()
	for _, point := range mountsBelow(t, dir) {
		t.Errorf("left mounted: %s", point)
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", point, err)
		}
	}
	if left := mountsBelow(t, dir); len(left) > 0 {
		t.Errorf("leave %s alone: still mounted: %v", dir, left)
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Errorf("remove the state directory: %v", err)
	}
}

// mountsBelow gives the mount points at or below dir, the deepest first.
func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	lines, err := readLines("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > 4 {
			if p := unescapeMount(words[4]); p == dir || strings.HasPrefix(p, dir+"/") {
				points = append([]string{p}, points...)
			}
		}
	}
	return points
}

// unescapeMount undoes the octal escapes of proc(5).
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
