package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The test's own binary stands for Pergola: called as a machine's first process calls it, it sleeps, or does what the
// words say.
const (
	asMachine = "machine"
	asInit    = "init"
	asSleeper = "sleep"
	asFailure = "fail"
)

func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		testkit.Main(m)
	}
	var err error
	switch os.Args[1] {
	case asMachine:
		err = Build(os.Args[2], os.Args[3], os.Args[0], asInit)
	case asInit:
		err = Init(context.Background())
	case asSleeper:
		select {}
	case asFailure:
		os.Exit(3)
	default:
		testkit.Main(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newBed makes a testbed with running machines, which goes with the test.
func newBed(t *testing.T, c Config) *Testbed {
	t.Helper()
	testkit.Root(t)
	dir := filepath.Join(testkit.TempState(t), "testbed")
	testkit.LeakCheck(t, dir)
	b, err := Create(dir, c)
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Errorf("remove: %v", err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrNone) {
			t.Errorf("after it was removed: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Machines() {
		if err := m.Boot(t.Context(), self(t), asMachine); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// in runs a command in a machine.
func in(m *Machine, args ...string) (string, error) {
	command, err := m.Command(args...)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(command[0], command[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %v: %w\n%s", m.Name, args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), err
}

func mustIn(t *testing.T, m *Machine, args ...string) string {
	t.Helper()
	out, err := in(m, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMachinesHaveWhatDiffersOfTheirOwn(t *testing.T) {
	b := newBed(t, Config{Machines: []string{"h1", "h2"}, MTU: 1500})
	all := b.Machines()
	var null unix.Stat_t
	if err := unix.Stat(os.DevNull, &null); err != nil {
		t.Fatal(err)
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if name := mustIn(t, m, "hostname"); name != m.Name {
			t.Errorf("%s is called %s", m.Name, name)
		}
		if first := mustIn(t, m, "readlink", "/proc/1/ns/pid"); first != mustIn(t, m, "readlink",
			"/proc/self/ns/pid") {
			t.Errorf("%s: /proc is not its own", m.Name)
		}
		if links := mustIn(t, m, "ls", "/sys/class/net"); links != "eth0\nlo" {
			t.Errorf("%s has interfaces %q", m.Name, links)
		}
		mustIn(t, m, "sh", "-c", "echo "+m.Name+" >/run/mine && echo "+m.Name+
			" >/var/lib/mine && mkdir /sys/fs/bpf/mine")
	}
	for _, m := range all {
		if text := mustIn(t, m, "cat", "/run/mine", "/var/lib/mine"); text != m.Name+"\n"+m.Name {
			t.Errorf("%s reads %q", m.Name, text)
		}
	}
	if a, b := mustIn(t, all[0], "cat", "/etc/hosts"), mustIn(t, all[1], "cat", "/etc/hosts"); a != b ||
		!strings.Contains(a, "198.18.0.2 h2\n") {
		t.Errorf("/etc/hosts is %q and %q", a, b)
	}
	if now, _ := os.Hostname(); now != here {
		t.Errorf("the real machine is called %s now", now)
	}
	for _, path := range []string{"/run/mine", "/var/lib/mine"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the real machine has %s", path)
		}
	}
	var now unix.Stat_t
	if err := unix.Stat(os.DevNull, &now); err != nil || now.Uid != null.Uid || now.Gid != null.Gid ||
		now.Mode != null.Mode {
		t.Errorf("%s was %+v and is %+v, %v", os.DevNull, null, now, err)
	}
}

// TestMachinesInheritNoFiles: who runs the tests under flock(1) would find the lock held as long as a machine lives.
func TestMachinesInheritNoFiles(t *testing.T) {
	testkit.Root(t)
	file := filepath.Join(testkit.TempState(t), "lock")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o600) // not O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	b := newBed(t, Config{Machines: []string{"h1"}, MTU: 1500})
	m := b.Machines()[0]
	if err := m.Start(asSleeper); err != nil {
		t.Fatal(err)
	}
	if open := mustIn(t, m, "sh", "-c", "ls -l /proc/1/fd /proc/$(pgrep -P 1)/fd"); strings.Contains(open, file) {
		t.Errorf("a machine holds %s:\n%s", file, open)
	}
}

func TestCgroupsOfMachinesDoNotMeet(t *testing.T) {
	b := newBed(t, Config{Machines: []string{"h1", "h2"}, MTU: 1500})
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		for _, m := range b.Machines() {
			mustIn(t, m, "mkdir", filepath.Join(h.point, "same-name"))
			if _, err := os.Stat(filepath.Join(h.point, b.group(), m.Name, "same-name")); err != nil {
				t.Errorf("a group of %s in %s: %v", m.Name, h.point, err)
			}
		}
	}
}

func TestWiresCarryWhatRealOnesDo(t *testing.T) {
	const mtu = 1400
	b := newBed(t, Config{Machines: []string{"h1", "h2"}, MTU: mtu})
	h1, h2 := b.Machines()[0], b.Machines()[1]
	for _, to := range []string{"198.18.0.2", "fd00:198:18::2", "h2"} {
		mustIn(t, h1, "ping", "-c1", "-W5", to)
	}
	mustIn(t, h1, "ping", "-c1", "-W5", "-Mdo", fmt.Sprintf("-s%d", mtu-28), "198.18.0.2")
	if out, err := in(h1, "ping", "-c1", "-W1", "-Mdo", fmt.Sprintf("-s%d", mtu-27), "198.18.0.2"); err == nil {
		t.Errorf("a packet of more than %d bytes went through:\n%s", mtu, out)
	}
	pid, err := h1.PID()
	if err != nil {
		t.Fatal(err)
	}
	for ns, device := range map[string]string{netns.Path(pid): NIC, b.path("switch"): "h1"} {
		err := netns.Do(ns, func() error {
			tool, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer tool.Close()
			is, err := tool.Features(device)
			for name, want := range map[string]bool{
				"tx-checksum-ip-generic": false, "tx-tcp-segmentation": false,
				"tx-gre-segmentation":     false,
				"tx-udp_tnl-segmentation": false, "tx-udp-segmentation": false, "rx-gro": true,
			} {
				if on, known := is[name]; !known || on != want {
					t.Errorf("%s of %s is %v", name, device, on)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := h2.Cut(); err != nil {
		t.Fatal(err)
	}
	if cut, err := h2.IsCut(); !cut || err != nil {
		t.Errorf("cut: %v, %v", cut, err)
	}
	if state := mustIn(t, h2, "cat", "/sys/class/net/eth0/carrier"); state != "0" {
		t.Errorf("the carrier of a cut wire is %s", state)
	}
	if _, err := in(h1, "ping", "-c1", "-W1", "198.18.0.2"); err == nil {
		t.Error("a cut wire carries frames")
	}
	if err := h2.Mend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		_, err := in(h1, "ping", "-c1", "-W1", "198.18.0.2")
		return err
	}, 20*time.Second, "the mended wire to carry frames")
}

func TestPergolaIsKilledAndStartedAgain(t *testing.T) {
	b := newBed(t, Config{Machines: []string{"h1"}, MTU: 1500})
	m := b.Machines()[0]
	if err := m.Restart(); err == nil {
		t.Error("what was never started was started again")
	}
	if err := m.Start(asSleeper, "soundly"); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(asSleeper); err == nil {
		t.Error("it was started twice")
	}
	// A node's process: its parent has ended, so the machine's first process is its parent.
	mustIn(t, m, "sh", "-c", "sleep 1000 </dev/null >/dev/null 2>&1 &")
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Status(); err != nil || s.Running || s.Ended != "killed" {
		t.Errorf("after a kill: %+v, %v", s, err)
	}
	mustIn(t, m, "pgrep", "-x", "sleep")
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Status(); err != nil || !s.Running || strings.Join(s.Args, " ") != "sleep soundly" {
		t.Errorf("started again: %+v, %v", s, err)
	}
	if err := m.Restart(); err != nil {
		t.Errorf("one that runs: %v", err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(asFailure); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		if s, err := m.Status(); err != nil || s.Running || s.Ended != "exit status 3" {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 20*time.Second, "the failure to be seen")
}

// TestRemoveFindsWhatACrashLeft takes a testbed away whose machines nobody knows but by the testbed's mark.
func TestRemoveFindsWhatACrashLeft(t *testing.T) {
	b := newBed(t, Config{Machines: []string{"h1", "h2"}, MTU: 1500})
	m := b.Machines()[0]
	mustIn(t, m, "sh", "-c", "mount -t tmpfs none /mnt && mkdir /run/netns && touch /run/netns/x && unshare -n "+
		"mount --bind /proc/self/ns/net /run/netns/x")
	if err := os.Remove(b.path(m.Name, "run/machine.sock")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.PID(); err == nil {
		t.Error("a machine without its socket was found")
	}
}

// Somebody took the directory for all that there is.
func TestRemoveFindsABedWithoutItsFiles(t *testing.T) {
	b := newBed(t, Config{Machines: []string{"h1", "h2"}, MTU: 1500})
	for _, name := range []string{stateFile, "hosts", "h1"} {
		if err := os.RemoveAll(b.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(b.path("mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), b.dir); err != nil {
		t.Fatal(err)
	}
	if found, err := b.readGroups(); found || err != nil {
		t.Errorf("cgroups are left: %v, %v", found, err)
	}
	left, err := os.ReadDir(b.dir)
	if err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("left: %v, %v", left, err)
	}
	// newBed's own Remove is to find something.
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveLeavesOtherDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), dir); !errors.Is(err, ErrNone) {
		t.Errorf("remove: %v", err)
	}
	if _, err := Create(dir, Config{Machines: []string{"h1"}, MTU: 1500}); err == nil ||
		!strings.Contains(err.Error(), "is not empty") {
		t.Errorf("create: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{MTU: 1500}, {Machines: make([]string, MaxMachines+1), MTU: 1500}, {Machines: []string{"h1"}, MTU: 1279}, {Machines: []string{"h1"}, MTU: 65536},
	} {
		if _, err := Create(t.TempDir(), c); err == nil {
			t.Errorf("%d machines, MTU %d: made", len(c.Machines), c.MTU)
		}
	}
}

func TestControllersOfAHierarchy(t *testing.T) {
	for options, want := range map[string]string{
		"rw,cpu,cpuacct":        "cpu,cpuacct",
		"rw,xattr,name=systemd": "name=systemd",
		"rw,pids":               "pids",
		"rw,cpuset,noprefix,clone_children,release_agent=/sbin/x": "cpuset",
	} {
		if got := controllers(options); got != want {
			t.Errorf("%s: %s, want %s", options, got, want)
		}
	}
}
