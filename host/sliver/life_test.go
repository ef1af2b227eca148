package sliver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func observe(t testing.TB, r *Runtime, id ID, want State) Observed {
	t.Helper()
	o, err := r.Observe(id)
	if err != nil {
		t.Fatal(err)
	}
	if o.State != want {
		t.Errorf("sliver %s is %s, want %s", id, o.State, want)
	}
	return o
}

func TestLifeOfPlainSliver(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	denver := spec("denver")
	denver.Notes = map[string]string{"born": "so"}
	id := denver.ID
	pid, err := r.Create(t.Context(), denver)
	if err != nil {
		t.Fatal(err)
	}
	if o := observe(t, r, id, Created); o.Notes["born"] != "so" {
		t.Errorf("notes %v", o.Notes)
	}
	if _, err := r.Create(t.Context(), spec("denver")); !errors.Is(err, ErrExists) {
		t.Errorf("second Create: %v", err)
	}
	for range 2 {
		if err := r.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Note(id, "booted", "yes"); err != nil {
		t.Fatal(err)
	}
	o := observe(t, r, id, Running)
	if o.PID != pid || o.Digest != "d1" || o.SliceName != "test" || o.StartedAt.IsZero() ||
		o.Notes["booted"] != "yes" ||
		o.Notes["born"] != "so" {
		t.Errorf("observed %+v", o)
	}
	if u, err := r.Usage(id); err != nil || u.PIDs == 0 || u.CPU == 0 || u.Memory == 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	got := sh(t, r, id, "hostname; getent hosts denver | cut -d' ' -f1; readlink /proc/1/exe")
	if got != "denver\n192.0.2.1\n/.pergola/init" {
		t.Errorf("inside: %q", got)
	}
	if size := proportional(t, pid); size > 1536<<10 {
		t.Errorf("the first process takes %d bytes", size)
	}
	for range 2 {
		if err := r.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Observe(id); !errors.Is(err, ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
}

// proportional gives the proportional set size of a process, in bytes.
func proportional(t testing.TB, pid int) (size int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(after(string(data), "\nPss:"), "%d kB", &size); err != nil {
		t.Fatal(err)
	}
	t.Logf("first process: %d KiB", size)
	return size << 10
}

func TestLifeOfCommand(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Command = []string{
		"sh", "-c",
		"cat /etc/motto; echo to stderr >&2; cat /proc/sys/net/ipv4/conf/eth1/rp_filter; exec sleep 1000",
	}
	s.Files = []slice.File{{Path: "/etc/motto", Data: []byte("hello\n")}}
	s.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.conf.eth1.rp_filter": "2"}
	pid, err := r.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	observe(t, r, s.ID, Created)
	if _, err := r.Exec(t.Context(), s.ID, ExecRequest{Args: []string{"true"}}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("command before the start: %v", err)
	}
	add := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n",
		"ip", "link", "add", "eth1", "type", "veth", "peer", "eth2")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if err := r.Start(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	observe(t, r, s.ID, Running)
	await(t, "the command's output", func() bool {
		data, _ := os.ReadFile(r.Log(s.ID))
		return string(data) == "hello\nto stderr\n2\n"
	})
	if got := sh(t, r, s.ID, "sysctl -n net.ipv4.ip_forward"); got != "1" {
		t.Errorf("ip_forward is %s", got)
	}
	if err := r.Pause(s.ID); err != nil {
		t.Fatal(err)
	}
	observe(t, r, s.ID, Paused)
	if _, err := r.Exec(t.Context(), s.ID, ExecRequest{Args: []string{"true"}}); err == nil {
		t.Error("command in a paused sliver: no error")
	}
	if err := r.Resume(s.ID); err != nil {
		t.Fatal(err)
	}
	observe(t, r, s.ID, Running)
	if err := r.Pause(s.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(r.LogPath("test", "denver")); len(data) == 0 {
		t.Error("the log went with the sliver")
	}
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	testkit.Await(t, done, 10*time.Second, what)
}

func TestExitIsTold(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	for command, want := range map[string]int{"exit 3": 3, "kill -9 $$": 137, "true": 0} {
		s := spec("denver")
		s.Command = []string{"sh", "-c", command}
		up(t, r, s)
		select {
		case id := <-r.Exits():
			if o := observe(t, r, id, Exited); id != s.ID || o.ExitCode != want || o.PID != 0 {
				t.Errorf("%s: %v %+v", command, id, o)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("exit was not told")
		}
		if err := r.Delete(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	s := spec("denver")
	up(t, r, s)
	if err := r.Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	s.Node = "boston"
	s.Command = []string{"true"}
	up(t, r, s)
	if id := <-r.Exits(); id != s.ID {
		t.Errorf("told of %s, which was deleted", id)
	}
}

// A sliver that needs more memory than it may have is known for that, and one that was killed for another reason is
// not.
func TestEndForWantOfMemoryIsSeen(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	for command, want := range map[string]bool{"exec tail /dev/zero": true, "kill -9 $$": false} {
		s := spec("denver")
		s.Memory = 32 << 20
		s.Command = []string{"sh", "-c", command}
		up(t, r, s)
		select {
		case <-r.Exits():
			if o := observe(t, r, s.ID, Exited); o.ExitCode != 137 || o.OutOfMemory != want {
				t.Errorf("%s: %+v", command, o)
			}
		case <-time.After(time.Minute):
			t.Fatal("exit was not told")
		}
		if err := r.Delete(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadSpecLeavesNothing(t *testing.T) {
	r := newRuntime(t)
	if _, err := r.Create(t.Context(), spec("denver")); !errors.Is(err, ErrNoSlice) {
		t.Errorf("unprepared slice: %v", err)
	}
	prepare(t, r)
	for name, c := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"sysctl":  {func(s *Spec) { s.Sysctls = map[string]string{"net.ipv4.nonsense": "1"} }, "nonsense"},
		"bind":    {func(s *Spec) { s.Binds = []slice.Bind{{Source: "/nonsense", Target: "/mnt"}} }, "/nonsense"},
		"file":    {func(s *Spec) { s.Files = []slice.File{{Path: "/proc/nonsense"}} }, "/proc/nonsense"},
		"memory":  {func(s *Spec) { s.Memory = 4096 }, ""},
		"name":    {func(s *Spec) { s.Node = "../denver" }, "denver"},
		"dir":     {func(s *Spec) { s.Rootfs = slice.Rootfs{Kind: slice.RootfsDir, Ref: "/nonsense"} }, "/nonsense"},
		"tar":     {func(s *Spec) { s.Rootfs = slice.Rootfs{Kind: slice.RootfsTar, Ref: strings.Repeat("ab", 32)} }, "abab"},
		"layout":  {func(s *Spec) { s.Rootfs = slice.Rootfs{Kind: slice.RootfsLayout, Ref: "/nonsense"} }, "/nonsense"},
		"command": {func(s *Spec) { s.Command = []string{"nonsense"} }, "nonsense"},
	} {
		s := spec("denver")
		c.change(&s)
		_, err := r.Create(t.Context(), s)
		if err == nil {
			err = r.Start(t.Context(), s.ID)
			if d := r.Delete(t.Context(), s.ID); d != nil {
				t.Error(d)
			}
		}
		if name == "memory" && err == nil {
			continue // where the kernel takes it
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", name, err)
		}
		t.Logf("%s: %v", name, err)
		if all, err := r.List(); err != nil || len(all) > 0 {
			t.Errorf("%s: left %v, %v", name, all, err)
		}
	}
}

func TestHostsChangeInPlace(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	if err := r.PrepareSlice(t.Context(), testSlice, "test", []byte("192.0.2.9 denver\n")); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, r, id, "cat /etc/hosts; echo >> /etc/hosts"); !strings.HasPrefix(got, "192.0.2.9 denver") ||
		!strings.HasSuffix(got, "exit 2") {
		t.Errorf("hosts: %q", got)
	}
}

func TestAFileInPlaceOfTheSharedHosts(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Files = []slice.File{{Path: "/etc/hosts", Data: []byte("192.0.2.7 own\n")}}
	id, _ := up(t, r, s)
	if got := sh(t, r, id, "cat /etc/hosts"); got != "192.0.2.7 own" {
		t.Errorf("hosts: %q", got)
	}
}

// TestManyAtOnce makes, lists and deletes fifty side by side.
func TestManyAtOnce(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	var g errgroup.Group
	for i := range 50 {
		g.Go(func() error {
			s := spec(fmt.Sprintf("n%d", i))
			if i%5 == 0 {
				s.Command = []string{"sleep", "1000"}
			}
			if _, err := r.Create(t.Context(), s); err != nil {
				return err
			}
			return r.Start(t.Context(), s.ID)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	all, err := r.List()
	if err != nil || len(all) != 50 {
		t.Fatalf("%d slivers, %v", len(all), err)
	}
	for _, o := range all {
		if o.State != Running {
			t.Errorf("%s is %s", o.ID, o.State)
		}
	}
	if err := r.RemoveSlice(t.Context(), testSlice); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Slices(); err != nil || len(left) > 0 {
		t.Errorf("slices left: %v, %v", left, err)
	}
}

// TestMainThreadStaysClean: a namespace of the main thread would be the process's, and stay.
func TestMainThreadStaysClean(t *testing.T) {
	testkit.Root(t)
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for range 200 {
		g.Go(func() error {
			return onThread(func() error { return syscall.Unshare(syscall.CLONE_NEWNS) })
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Readlink("/proc/self/ns/mnt"); err != nil || after != before {
		t.Errorf("main thread is in %s, was in %s (%v)", after, before, err)
	}
}

// reapRuntimes reaps the OCI runtimes that a killed server was running: this process is their subreaper, unlike what
// starts a server elsewhere.
func reapRuntimes(t testing.TB) {
	t.Helper()
	for name := range machine(t) {
		var pid int
		if n, _ := fmt.Sscanf(name, "child %d (crun) Z", &pid); n == 1 {
			reap(pid)
		}
	}
}

// TestServerDies has another process make slivers and be killed at a random moment of it; a second Runtime takes over.
func TestServerDies(t *testing.T) {
	if dir := os.Getenv("SLIVER_TEST_CHILD"); dir != "" {
		r := openRuntime(t, dir)
		prepare(t, r)
		for i := 0; ; i++ {
			s := spec(fmt.Sprintf("n%d", i))
			s.Command = []string{"sleep", "1000"}
			up(t, r, s)
		}
	}
	r := newRuntime(t)
	dir := filepath.Dir(r.cfg.StateDir)
	for round := range 6 {
		c := exec.Command(os.Args[0], "-test.run=^TestServerDies$")
		c.Env = append(os.Environ(), "SLIVER_TEST_CHILD="+dir)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "third sliver of the child", func() bool { return exists(r.nodeDir(ID{testSlice, "n2"})) })
		time.Sleep(time.Duration(round) * 3 * time.Millisecond)
		_, _ = c.Process.Kill(), c.Wait()
		defer reapRuntimes(t)

		second := openRuntime(t, dir)
		all, err := second.List()
		if err != nil || len(all) < 2 {
			t.Fatalf("%v, %v: %s", all, err, out.String())
		}
		for _, o := range all {
			if o.Node == "n0" && o.State != Running {
				t.Errorf("adopted sliver is %s", o.State)
			}
		}
		if got := sh(t, second, ID{testSlice, "n0"}, "hostname"); got != "n0" {
			t.Errorf("adopted sliver: %q", got)
		}
		n1 := observe(t, second, ID{testSlice, "n1"}, Running)
		if err := syscall.Kill(n1.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case id := <-second.Exits():
			if id.Node != "n1" {
				t.Errorf("exit of %s, want n1", id)
			}
		case <-time.After(10 * time.Second):
			t.Error("exit of an adopted sliver was not told")
		}
		if err := second.RemoveSlice(t.Context(), testSlice); err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(all[len(all)-1])
		t.Logf("round %d: %d slivers, last %s", round, len(all), data)
	}
}
