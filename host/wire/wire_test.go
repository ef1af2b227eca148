package wire_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// lab is a host network of a test, with its nodes.
type lab struct {
	testing.TB
	*wire.HostNetwork
	ctx   context.Context
	dir   string
	nodes map[string]*node
	ports int

	machine *os.File // its namespace; nil: this one's
	plain   bool     // without programs of eBPF
}

// node is a process in namespaces of its own, as a container's first process is.
type node struct {
	name string
	pid  int
	cmd  *exec.Cmd
}

func newLab(t testing.TB) *lab {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	return newLabOn(t, nil, dir)
}

// newLabOn is newLab on a machine of its own, as far as its namespace makes one. The caller looks for leaks.
func newLabOn(t testing.TB, machine *os.File, dir string) *lab {
	t.Helper()
	l := &lab{TB: t, ctx: t.Context(), dir: dir, nodes: map[string]*node{}, machine: machine, plain: labsArePlain}
	t.Cleanup(func() {
		if l.HostNetwork != nil {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := l.there(func() error { return wire.Remove(context.Background(), dir) }); err != nil {
			t.Error(err)
		}
		for _, n := range l.nodes {
			l.kill(n)
		}
	})
	l.reopen()
	return l
}

// reopen opens the host network as a server does that starts.
func (l *lab) reopen() {
	l.Helper()
	if l.HostNetwork != nil {
		l.must(l.Close())
	}
	l.must(l.there(func() (err error) {
		l.HostNetwork, err = wire.Open(context.Background(), wire.Config{StateDir: l.dir, Plain: l.plain})
		return err
	}))
}

// there calls f in the machine's namespace.
func (l *lab) there(f func() error) error {
	if l.machine == nil {
		return f()
	}
	return netns.In(l.machine, f)
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// haveUserNamespaces is false in a chroot, where nobody makes them (user_namespaces(7)).
var haveUserNamespaces = sync.OnceValue(func() bool { return exec.Command("unshare", "--user", "true").Run() == nil })

func (l *lab) node(name string) *node {
	l.Helper()
	if n, ok := l.nodes[name]; ok {
		return n
	}
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), "PERGOLA_TEST="+l.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if haveUserNamespaces() {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0x60010000, Size: 65536}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0x60010000, Size: 65536}}
	}
	err := cmd.Start()
	l.must(err)
	n := &node{name: name, pid: cmd.Process.Pid, cmd: cmd}
	l.nodes[name] = n
	return n
}

func (l *lab) kill(n *node) {
	l.must(n.cmd.Process.Kill())
	_ = n.cmd.Wait() // killed: always an error
	delete(l.nodes, n.name)
}

// port gives a node an interface eth<number> and returns the port's name.
func (l *lab) port(name string, change func(*wire.Port), addresses ...string) string {
	l.Helper()
	p := l.portOf(name, addresses...)
	if change != nil {
		change(&p)
	}
	l.must(l.AddPort(l.ctx, p))
	return p.Name
}

func (l *lab) portOf(name string, addresses ...string) wire.Port {
	l.ports++
	return wire.Port{
		Name: fmt.Sprintf("s7p%d", l.ports), Slice: 7, Owner: "lab/" + name + ":eth0", Digest: "d1",
		PID: l.node(name).pid, Inner: "eth0", MAC: mac(l.ports), MTU: 1500, Addresses: prefixes(addresses...),
	}
}

func mac(n int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(n >> 8), byte(n)}
}

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// pair makes two nodes a and b, joined.
func (l *lab) pair() (a, b string) {
	l.Helper()
	a = l.port("a", nil, "192.0.2.0/31", "2001:db8::/127")
	b = l.port("b", nil, "192.0.2.1/31", "2001:db8::1/127")
	l.must(l.Join(l.ctx, a, b))
	return a, b
}

func (l *lab) exec(name string, command ...string) (string, error) {
	l.Helper()
	args := append([]string{"--net=" + netns.Path(l.node(name).pid)}, command...)
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	return string(out), err
}

// link waits until the node's eth0 is shown with a flag.
func (l *lab) link(name, flag string) {
	l.Helper()
	testkit.Eventually(l, func() error {
		out, err := l.exec(name, "ip", "-o", "link", "show", "eth0")
		if err == nil && !strings.Contains(out, flag) {
			err = fmt.Errorf("%s", out)
		}
		return err
	}, 5*time.Second, flag+" in "+name)
}

func (l *lab) carrier(name string) {
	l.Helper()
	l.link(name, "LOWER_UP")
}

func (l *lab) ping(from, to string, more ...string) {
	l.Helper()
	// The first may be lost to neighbour discovery.
	testkit.Eventually(l, func() error {
		if out, err := l.exec(from, append([]string{"ping", "-c1", "-W1", to}, more...)...); err != nil {
			return fmt.Errorf("ping %s from %s: %w\n%s", to, from, err, out)
		}
		return nil
	}, 20*time.Second, "an answer")
}

func (l *lab) noPing(from, to string) {
	l.Helper()
	if out, err := l.exec(from, "ping", "-c2", "-i0.2", "-W1", to); err == nil {
		l.Errorf("%s reaches %s:\n%s", from, to, out)
	}
}

func (l *lab) observe() wire.State {
	l.Helper()
	s, err := l.Observe(l.ctx)
	l.must(err)
	return s
}

func TestRemoveLeavesNothing(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	sw := wire.Switch{Name: "s7b1", Slice: 7, Owner: "lab/sw", Digest: "d"}
	l.must(l.AddSwitch(l.ctx, sw))
	_, _ = a, b
	if !wire.Present(l.dir) {
		t.Error("an open host network is not present")
	}
	l.must(l.Remove(l.ctx))
	l.HostNetwork = nil
	if wire.Present(l.dir) {
		t.Error("a removed host network is present")
	}
	left, err := filepath.Glob(l.dir + "/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	l.must(wire.Remove(l.ctx, l.dir)) // again
}

func TestRemoveOfHalfMade(t *testing.T) {
	for _, remains := range [][]string{{"netns"}, {"netns", "netns/substrate"}, {"netns", "bpf"}, {"bpf"}} {
		l := newLab(t)
		l.must(l.Remove(l.ctx))
		l.HostNetwork = nil
		for _, r := range remains {
			var err error
			if r == "netns/substrate" {
				err = os.WriteFile(filepath.Join(l.dir, r), nil, 0o600)
			} else {
				err = os.Mkdir(filepath.Join(l.dir, r), 0o700)
			}
			l.must(err)
		}
		l.must(wire.Remove(l.ctx, l.dir))
		if wire.Present(l.dir) {
			t.Errorf("after removing %v: present", remains)
		}
		l.reopen() // and it can be made again
	}
}

func splitLines(s string) []string { return strings.Split(s, "\n") }
