package sliver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needRoot skips a test on a laptop, and fails it in CI.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("needs root, and CI must not skip it")
	}
	t.Skip("needs root")
}

const testSlice = 4000

// newRuntime gives a Runtime with directories of its own; at the end of the test nothing of it may be left.
func newRuntime(t testing.TB) *Runtime {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "sliver")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711)
	before := machine(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Cleanup(func() {
		if left := difference(before, machine(t)); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
	return openRuntime(t, dir)
}

func openRuntime(t testing.TB, dir string) *Runtime {
	t.Helper()
	r, err := New(t.Context(), Config{
		StateDir: filepath.Join(dir, "state"), LogDir: filepath.Join(dir, "log"), BlobDir: filepath.Join(dir, "blobs"),
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
	for _, pattern := range []string{"/sys/fs/cgroup/pergola-*", "/sys/fs/cgroup/*/pergola-*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			all["cgroup "+name] = true
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range procs {
		data, _ := os.ReadFile(name)
		var uid int
		if _, err := fmt.Sscanf(after(string(data), "\nUid:\t"), "%d", &uid); err == nil && uid >= firstUID {
			all[fmt.Sprintf("process %s %s", filepath.Dir(name), strings.SplitN(string(data), "\n", 2)[0])] = true
		}
	}
	if fi, err := os.Stat("/dev/null"); err == nil {
		all[fmt.Sprintf("%v %v", fi.Mode(), fi.Sys())] = false
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
	if err := r.PrepareSlice(t.Context(), testSlice, "test", []byte("127.0.0.1 localhost\n192.0.2.1 denver\n")); err != nil {
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

func run(t testing.TB, pid int, command string) string {
	t.Helper()
	c := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-a", "sh", "-c", command)
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(bytes.TrimSpace(out))
}

func TestPlain(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	start := time.Now()
	id, pid := up(t, r, spec("denver"))
	t.Log("up", time.Since(start))
	t.Log(run(t, pid, "id; ls -la / /etc/frr /run; cat /etc/hosts; hostname; mount; ps ax; ip a; cat /proc/1/status; ls /dev /dev/net; cat /proc/1/cgroup"))
	o, err := r.Observe(id)
	t.Logf("%+v %v", o, err)
	u, err := r.Usage(id)
	t.Logf("%+v %v", u, err)
	start = time.Now()
	if err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	t.Log("down", time.Since(start))
}
