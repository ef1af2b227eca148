package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
)

// square has two ways from a to c, a host behind either end, and a node that counts its starts.
const square = `
name: square
nodes:
  a: {routing: ospf, daemon: bird}
  b: {routing: ospf, daemon: frr}
  c: {routing: ospf, daemon: bird}
  d: {routing: ospf, daemon: bird}
  h1: {exec: [touch /tmp/started]}
  h2:
  spare:
links:
  - [a, b]
  - [b, c]
  - {name: cut, ends: [c, d]}
  - [d, a]
  - [h1, a]
  - {name: slow, ends: [h2, c]}
  - [spare, h2]
`

// TestSlicesReturnAfterAReboot takes from a machine all that a reboot takes, without asking the server: processes,
// namespaces, mounts, BPF objects, cgroups and everything below /run. The next server must bring the slice back as it
// was wanted, with what users had changed by hand, at the same addresses.
func TestSlicesReturnAfterAReboot(t *testing.T) {
	testkit.Root(t)
	s := newServer(t, pergola(t))
	file := filepath.Join(s.state, "square.yaml")
	if err := os.WriteFile(file, []byte(square), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.mustSucceed(t, "up", file, "--wait")
	s.mustSucceed(t, "link", "down", "cut")
	s.mustSucceed(t, "link", "set", "slow", "--rate", "50Mbit")
	s.mustSucceed(t, "node", "stop", "spare")
	wanted := s.output(t, "inspect", "square", "--json")
	addresses := s.output(t, "exec", "-s", "square", "h1", "--", "ip", "-br", "addr", "show", "eth1")
	links := s.output(t, "link", "ls", "square", "--json")

	s.reboot(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.mustSucceed(t, "wait", "square", "--timeout", "60s")
	if got := s.output(t, "link", "ls", "square", "--json"); !bytes.Equal(got, links) {
		t.Errorf("links were\n%s\nand are\n%s", links, got)
	}
	if got := s.output(t, "exec", "-s", "square", "h1", "--", "ip", "-br", "addr", "show",
		"eth1"); withoutPeer(got) != withoutPeer(addresses) {
		t.Errorf("h1 had %sand has %s", addresses, got)
	}
	if got := s.output(t, "inspect", "square", "--json"); !bytes.Equal(overrides(t, got), overrides(t, wanted)) {
		t.Errorf("by hand was changed %s\nand is %s", overrides(t, wanted), overrides(t, got))
	}
	nodes, err := s.nodes("square")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range nodes {
		if running := n.PID != 0; running == (name == "spare") {
			t.Errorf("%s: %+v", name, n)
		}
	}
	testkit.Eventually(t, func() error {
		return s.command("exec", "-s", "square", "h1", "--", "test", "-e", "/tmp/started").Run()
	}, 20*time.Second, "h1's exec lines were run again")
	s.mustSucceed(t, "exec", "-s", "square", "h1", "--", "ping", "-c", "3", "-i", "0.2", "h2")
	s.mustSucceed(t, "verify", "square")
	testkit.Eventually(t, func() error {
		if err := s.command("exec", "-s", "square", "h1", "--", "ping", "-c", "10", "-i", "0.01",
			"h2").Run(); err != nil {
			return err
		}
		if frames, err := s.walkedInto("square", "b:eth1"); err != nil || frames == 0 {
			return fmt.Errorf("%d frames were walked through b: %w", frames, err)
		}
		return nil
	}, 20*time.Second, "frames are walked again")
	s.mustSucceed(t, "down", "square")
}

func (s *server) output(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := s.command(args...).Output()
	if err != nil {
		t.Fatalf("pergola %v: %v\n%s", args, err, out)
	}
	return out
}

// withoutPeer takes the number of the far end of a veth pair, which moves the columns, out of what ip(8) says.
func withoutPeer(text []byte) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`@if\d+`).ReplaceAllString(string(text), "")), " ")
}

// overrides is what was changed by hand, of what inspect says.
func overrides(t *testing.T, inspected []byte) []byte {
	t.Helper()
	var s struct {
		Overrides json.RawMessage `json:"overrides"`
	}
	if err := json.Unmarshal(inspected, &s); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(s.Overrides, []byte("spare")) {
		t.Errorf("nothing is said of the node that was stopped: %s", s.Overrides)
	}
	return s.Overrides
}

// reboot leaves of the server, its slices and the kernel objects of both what a reboot leaves: the data directory and
// the logs.
func (s *server) reboot(t *testing.T) {
	t.Helper()
	pids := s.slivers(t)
	group := cgroupOf(t, pids[0])
	if err := s.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids { // the first process of a PID namespace takes all others with it
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
	testkit.Eventually(t, func() error { return removeGroups(group) }, 20*time.Second, "cgroups are empty and go")
	run := filepath.Join(s.state, "run")
	for _, point := range mountsBelow(t, run) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Fatalf("unmount %s: %v", point, err)
		}
	}
	if left := mountsBelow(t, run); len(left) > 0 {
		t.Fatalf("still mounted: %v", left)
	}
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
}

// slivers gives the first processes of all nodes.
func (s *server) slivers(t *testing.T) []int {
	t.Helper()
	nodes, err := s.nodes("square")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, n := range nodes {
		if n.PID > 1 {
			pids = append(pids, n.PID)
		}
	}
	if len(pids) == 0 {
		t.Fatalf("no node runs: %+v", nodes)
	}
	return pids
}

// cgroupOf is the name of the cgroup below which a server keeps those of its nodes.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`pergola-[0-9a-f]+`).Find(text)
	if name == nil {
		t.Fatalf("process %d is in no cgroup of a server:\n%s", pid, text)
	}
	return string(name)
}

// removeGroups removes the cgroups of a name from all hierarchies, those within first.
func removeGroups(name string) error {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && strings.Contains(path+"/", "/"+name+"/"):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Reverse(found)
	for _, path := range found {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", path, err)
		}
	}
	return nil
}

// mountsBelow gives the mount points below dir, the latest first.
func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 4 && strings.HasPrefix(words[4], dir+"/") {
			points = append(points, words[4])
		}
	}
	slices.Reverse(points)
	return points
}
