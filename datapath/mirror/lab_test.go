package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// lab is a router in a namespace with three veths, whose other ends, the ports, are in another.
type lab struct {
	testing.TB
	name   string
	fib    *fib.FIB
	mirror *Mirror
	ns     *os.File // the router's
	far    *os.File // the ports'
	legs   map[int]int
	ports  [3]int
}

// newLab makes a router with 10.0.i.1/24 and 2001:db8:i::1/64 on eth0 to eth2, and mirrors it.
func newLab(t testing.TB, change ...func(*Config)) *lab {
	t.Helper()
	testkit.Root(t)
	testkit.LeakCheck(t)
	l := &lab{TB: t, name: "r"}
	l.build(100)
	l.fib = openFIB(t)
	cfg := Config{FIB: l.fib, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	for _, f := range change {
		f(&cfg)
	}
	l.mirror = New(cfg)
	t.Cleanup(l.mirror.Close)
	l.set(Router{})
	return l
}

// another makes a router beside the first, with the same addresses, in the same mirror. Its ports are 200 to 202.
func (l *lab) another() *lab {
	l.Helper()
	o := &lab{TB: l.TB, name: "another", fib: l.fib, mirror: l.mirror}
	o.build(200)
	o.set(Router{})
	return o
}

// build makes the router's namespace and links.
func (l *lab) build(port int) {
	l.Helper()
	l.ns, l.far, l.legs = namespace(l.TB), namespace(l.TB), map[int]int{}
	l.script(`
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
		sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
		sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
		sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1
		ip link set lo up`)
	for i := range 3 {
		l.ports[i] = port + i
		l.addLeg(i)
	}
}

func (l *lab) set(r Router) {
	l.Helper()
	if err := l.trySet(r); err != nil {
		l.Fatal(err)
	}
}

// trySet is for goroutines other than the test's.
func (l *lab) trySet(r Router) error {
	r.Slice, r.NetNS, r.Legs = 1, l.ns, l.legs
	gone, err := l.mirror.Set(l.name, r)
	if err == nil {
		<-gone
	}
	return err
}

// addLeg makes eth<i>.
func (l *lab) addLeg(i int) {
	l.Helper()
	err := netns.In(l.far, func() error {
		return sh(fmt.Sprintf("ip link add port%d index %d type veth peer name eth%d netns /proc/%d/fd/%d; "+
			"ip link set port%d up",
			i, l.ports[i], i, os.Getpid(), l.ns.Fd(), i))
	})
	if err != nil {
		l.Fatal(err)
	}
	l.script(fmt.Sprintf(`
		ip link set eth%d up
		ip addr add 10.0.%d.1/24 dev eth%d
		ip addr add 2001:db8:%d::1/64 dev eth%d nodad`, i, i, i, i, i))
	index, err := strconv.Atoi(strings.TrimSpace(l.output(fmt.Sprintf("cat /sys/class/net/eth%d/ifindex || ip -o "+
		"link show eth%d | cut -d: -f1", i, i))))
	if err != nil {
		l.Fatal(err)
	}
	l.legs[index] = l.ports[i]
}

func namespace(t testing.TB) *os.File {
	t.Helper()
	var ns *os.File
	err := netns.New(func() (err error) {
		ns, err = netns.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func sh(script string) error {
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

// script runs in the router's namespace.
func (l *lab) script(s string) {
	l.Helper()
	if err := netns.In(l.ns, func() error { return sh(s) }); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) output(s string) string {
	l.Helper()
	var out []byte
	err := netns.In(l.ns, func() (err error) {
		out, err = exec.Command("unshare", "-m", "sh", "-c",
			"mount -t sysfs sysfs /sys 2>/dev/null; "+s).Output()
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	return string(out)
}

// batch hands lines to `ip -batch`.
func (l *lab) batch(lines string) {
	l.Helper()
	err := netns.In(l.ns, func() error {
		c := exec.Command("ip", "-force", "-batch", "-")
		c.Stdin = strings.NewReader(lines)
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip -batch: %w: %.500s", err, out)
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
}

// synced waits until the mirror has caught up with the kernel, and compares them.
func (l *lab) synced() {
	l.Helper()
	testkit.Eventually(l, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil || !s.Synchronised {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 30*time.Second, "the mirror to be synchronised")
	l.verify()
}

func (l *lab) verify() {
	l.Helper()
	found, err := l.mirror.Verify(context.Background(), l.name)
	if err != nil {
		l.Fatal(err)
	}
	for _, d := range found {
		l.Errorf("differs: %v", d)
	}
}

func (l *lab) lookup(addr string) fib.Route {
	l.Helper()
	n, err := l.mirror.node(l.name)
	if err != nil {
		l.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return fib.Route{}
	}
	return n.session.out.Lookup(netip.MustParseAddr(addr))
}

// leads waits until frames to an address are dealt with in the way that words say: see words.route, with port numbers.
func (l *lab) leads(addr, want string) {
	l.Helper()
	testkit.Eventually(l, func() error {
		if have := brief(l.lookup(addr)); have != want {
			return errors.New(have)
		}
		return nil
	}, 5*time.Second, addr+" to lead to "+want)
}

// addGroup makes a group of next-hop objects, with weights that `ip` does not know.
func (l *lab) addGroup(id uint32, members ...member) error {
	var group []byte
	for _, m := range members {
		group = binary.NativeEndian.AppendUint32(group, m.id)
		group = append(group, byte(m.weight-1), byte((m.weight-1)>>8), 0, 0)
	}
	b := append(make([]byte, sizeofNHMsg), rtnl.U32(unix.NHA_ID, id)...)
	b = append(b, rtnl.Bytes(unix.NHA_GROUP, group)...)
	request := encode(netlinkMessage(unix.RTM_NEWNEXTHOP,
		unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, b))
	return netns.In(l.ns, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		answer := make([]byte, 1<<12)
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return err
		}
		if m, _, err := rtnl.NextMessage(answer[:n]); err != nil || binary.NativeEndian.Uint32(m.Data) != 0 {
			return fmt.Errorf("add a group: %w", errors.Join(err, refusal(m)))
		}
		return nil
	})
}

func brief(r fib.Route) string {
	switch r.Kind {
	case fib.None:
		return "nowhere"
	case fib.Local:
		return "local"
	case fib.Reject:
		return "reject"
	case fib.Other:
		return "other"
	case fib.Unicast:
	}
	var s []string
	for _, p := range r.Paths {
		via := "link"
		if p.Gateway.IsValid() {
			via = p.Gateway.String()
		}
		w := ""
		if len(r.Paths) > 1 {
			w = fmt.Sprintf("*%d", p.Weight)
		}
		s = append(s, fmt.Sprintf("%s@%d%s", via, p.Port, w))
	}
	return strings.Join(s, " ")
}

type testWriter struct{ testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.Helper()
	w.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func openFIB(t testing.TB) *fib.FIB {
	t.Helper()
	f, err := fib.Open(newMaps(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// newMaps makes maps as bpf/fib.h has them.
func newMaps(t testing.TB) fib.Maps {
	t.Helper()
	const mmapable = 0x400
	array := func(value, n uint32) *ebpf.Map {
		return newMap(t, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: value, MaxEntries: n,
			Flags: mmapable})
	}
	hash := func(key, value uint32) *ebpf.Map {
		return newMap(t, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: key, ValueSize: value, MaxEntries: 262144,
			Flags: 1})
	}
	nodes := newMap(t, &ebpf.MapSpec{
		Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 2048,
		InnerMap: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 1024, MaxEntries: 1024,
			Flags: mmapable},
	})
	return fib.Maps{
		Legs: array(16, 16384), Routers: array(16, 4096), Nodes: nodes, Nexthops: array(16, 65536),
		Neighbours: hash(20, 8), Shortcuts: array(16, 65536), Sources: hash(8, 4), PossibleSources: array(8,
			8192), Lease: array(8, 1),
	}
}

func newMap(t testing.TB, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}
