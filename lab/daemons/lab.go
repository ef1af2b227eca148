// Package daemons is for tests: it makes a slice out of plain namespaces, so that packages which look into nodes, or
// configure what runs in them, can be tested against the real daemons without the rest of Pergola.
//
// Every node is one process in its own network, mount, pid and uts namespace, in which the directories that daemons
// write are private. Everything ends with the test.
package daemons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// Lab is a slice that exists.
type Lab struct {
	Slice *slice.Slice
	t     testing.TB
	nodes map[string]*node
}

// node is the process that holds a node's namespaces.
type node struct {
	pid    int
	begin  io.WriteCloser // one line here: the command to become
	output buffer
}

// hub holds the bridges of LANs and switches. No node has this name: it is not a host name.
const hub = "(hub)"

// prepare gives the node its own directories, says so, and waits for the command that it shall become.
const prepare = `
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=0755 tmpfs /var/log
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mkdir -p /run/lab/etc /run/lab/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/lab/etc,workdir=/run/lab/work overlay /etc
rm -rf /etc/frr/* /etc/bird/*
hostname "$0" 2>/dev/null
echo ready
read -r command || exit 0
eval "exec $command"
`

// New makes the nodes and links of s. The interfaces have their addresses, routers forward.
func New(t testing.TB, s *slice.Slice) *Lab {
	t.Helper()
	testkit.Root(t)
	l := &Lab{Slice: s, t: t, nodes: map[string]*node{}}
	names := []string{hub}
	for i := range s.Nodes {
		if s.Nodes[i].HasSliver() {
			names = append(names, s.Nodes[i].Name)
		}
	}
	for _, name := range names {
		l.hold(name)
	}
	if err := l.wire(); err != nil {
		t.Fatal(err)
	}
	return l
}

// hold starts a node's process.
func (l *Lab) hold(name string) {
	l.t.Helper()
	n := &node{}
	// the test's own context ends before its clean-up
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", prepare, name)
	cmd.Stdout, cmd.Stderr = &n.output, &n.output
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL, // a test that panics leaves nothing behind either
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
	}
	var err error
	if n.begin, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.t.Fatalf("start %s: %v", name, err)
	}
	n.pid = cmd.Process.Pid
	l.nodes[name] = n
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill() // as the first process of its pid namespace it takes all others along
		_ = cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("%s printed:\n%s", name, tail(n.output.String(), 4000))
		}
	})
	testkit.Eventually(l.t, func() error {
		if !strings.Contains(n.output.String(), "ready\n") {
			return errors.New(n.output.String())
		}
		return nil
	}, 10*time.Second, name+" to have its namespaces")
}

// PID gives the first process of a node.
func (l *Lab) PID(name string) int { return l.nodes[name].pid }

// PIDs gives the first process of every node.
func (l *Lab) PIDs(context.Context) (map[string]int, error) {
	pids := map[string]int{}
	for name, n := range l.nodes {
		if name != hub {
			pids[name] = n.pid
		}
	}
	return pids, nil
}

// Log gives what a node printed.
func (l *Lab) Log(name string) string { return l.nodes[name].output.String() }

// Write puts files into a node.
func (l *Lab) Write(name string, files []slice.File) {
	l.t.Helper()
	root := filepath.Join("/proc", strconv.Itoa(l.PID(name)), "root")
	for _, f := range files {
		path := filepath.Join(root, f.Path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, f.Data, os.FileMode(f.Mode))
		}
		if err == nil {
			err = os.Chmod(path, os.FileMode(f.Mode))
		}
		if err != nil {
			l.t.Fatalf("write %s of %s: %v", f.Path, name, err)
		}
	}
}

// Start lets a node's first process become the command, below an init that reaps.
func (l *Lab) Start(name string, command []string) {
	l.t.Helper()
	line := "/usr/bin/catatonit --"
	for _, w := range command {
		line += " '" + w + "'"
	}
	if _, err := fmt.Fprintln(l.nodes[name].begin, line); err != nil {
		l.t.Fatalf("start %s: %v", name, err)
	}
}

// Exec runs a command in a node and gives what it printed.
func (l *Lab) Exec(name string, command ...string) (string, error) {
	// With its root: the machine may be a chroot, and then a mount namespace alone leads out of it.
	args := append([]string{"-t", strconv.Itoa(l.PID(name)), "-m", "-n", "-p", "-u", "-r", "-w", "--"}, command...)
	out, err := exec.CommandContext(context.Background(), "nsenter", args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %q in %s: %w: %s", command, name, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// buffer is written by a process and read by the test.
type buffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// tail gives the end of a long text.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }
