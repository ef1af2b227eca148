package sliver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

func skipOutsideCI(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s, and CI must not skip this test", why)
	}
	t.Skip(why)
}

const testSlice = 4000

// newRuntime gives a Runtime with directories of its own; at the end of the test nothing of it may be left.
func newRuntime(t testing.TB) *Runtime {
	t.Helper()
	testkit.Root(t)
	dir, err := os.MkdirTemp("", "sliver")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	before := machine(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var r *Runtime
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			if groups, _ := filepath.Glob(pattern + r.groupRoot()); len(groups) > 0 {
				t.Errorf("left behind: %v", groups)
			}
		}
		if left := difference(before, machine(t)); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
	r = openRuntime(t, dir)
	return r
}

func openRuntime(t testing.TB, dir string) *Runtime {
	t.Helper()
	r, err := New(t.Context(), Config{
		StateDir: filepath.Join(dir, "state"), LogDir: filepath.Join(dir, "log"),
		BlobDir: filepath.Join(dir, "blobs"), VolumeDir: filepath.Join(dir, "volumes [1]"),
		Runtime: os.Getenv("PERGOLA_TEST_RUNTIME"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		slices, err := r.Slices()
		if err != nil {
			t.Error(err)
		}
		for _, id := range slices {
			if err := r.RemoveSlice(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
		r.Close()
	})
	return r
}

// machine lists what slivers could leave on the machine.
func machine(t testing.TB) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, "/sliver") {
			all["mount "+line] = true
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range procs {
		data, _ := os.ReadFile(name)
		var uid int
		if _, err := fmt.Sscanf(after(string(data), "\nUid:\t"), "%d", &uid); err == nil &&
			uid >= uidBase(testSlice) &&
			uid < uidBase(testSlice+1) {
			first, _, _ := strings.Cut(string(data), "\n")
			all[fmt.Sprintf("process %s %s", filepath.Dir(name), first)] = true
		}
	}
	zombies, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	for _, name := range zombies {
		data, _ := os.ReadFile(name)
		for _, pid := range strings.Fields(string(data)) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			all["child "+string(stat)] = true
		}
	}
	if fi, err := os.Stat("/dev/null"); err == nil && fi.Sys().(*syscall.Stat_t).Uid != 0 {
		all["owner of /dev/null"] = true
	}
	return all
}

func after(s, mark string) string {
	_, rest, _ := strings.Cut(s, mark)
	return rest
}

func difference(before, now map[string]bool) string {
	var left []string
	for name, counts := range now {
		if _, was := before[name]; counts && !was {
			left = append(left, name)
		}
	}
	return strings.Join(left, "\n")
}

func prepare(t testing.TB, r *Runtime) {
	t.Helper()
	hosts := []byte("127.0.0.1 localhost\n192.0.2.1 denver\n")
	if err := r.PrepareSlice(t.Context(), testSlice, "test", hosts); err != nil {
		t.Fatal(err)
	}
}

func spec(node string) Spec {
	return Spec{ID: ID{testSlice, node}, SliceName: "test", Digest: "d1"}
}

func up(t testing.TB, r *Runtime, s Spec) (ID, int) {
	t.Helper()
	pid, err := r.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	return s.ID, pid
}
