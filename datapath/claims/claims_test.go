package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var inner = netip.MustParseAddr("127.5.5.5") // stands for the interface to the machine: every namespace has it

// pins is a directory of a bpf file system.
func pins(t *testing.T) string {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "claims")
}

func open(t *testing.T, dir string, tell func()) *Claims {
	t.Helper()
	c, err := Open(dir, tell)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sliver is a network namespace that stays until the test ends.
type sliver struct {
	testing.TB
	path  string
	netns NetNS
}

func newSliver(t *testing.T) *sliver {
	t.Helper()
	s := &sliver{TB: t}
	if err := netns.New(func() error {
		ns, err := netns.Here()
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = ns.Close() })
		s.path = fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
		s.netns, err = Here()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// bind binds a socket in the namespace for as long as the test runs.
func (s *sliver) bind(family, kind int, to unix.Sockaddr) error {
	var bound error
	if err := netns.Do(s.path, func() error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return err
		}
		bound = unix.Bind(fd, to)
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	return bound
}

func v4(port int, address string) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(address).As4()}
}

func v6(port int, address string) unix.Sockaddr {
	return &unix.SockaddrInet6{Port: port, Addr: netip.MustParseAddr(address).As16()}
}

// whose says whose a port is, and whether it is anybody's.
func whose(t *testing.T, c *Claims, protocol, number uint16) (NetNS, bool) {
	t.Helper()
	all, err := c.All()
	if err != nil {
		t.Fatal(err)
	}
	is, claimed := all[Port{protocol, number}]
	if claimed && is.NetNS != Nobody && (is.Age < 0 || is.Age > time.Hour) {
		t.Errorf("port %d was bound %v ago", number, is.Age)
	}
	return is.NetNS, claimed
}

func TestWhoBindsAPortHasIt(t *testing.T) {
	c := open(t, pins(t), func() {})
	defer func() { _ = c.Close() }()
	a, b, stranger := newSliver(t), newSliver(t), newSliver(t)
	for _, s := range []*sliver{a, b} {
		if err := c.Bind(s.netns, Binder{Address: inner, First: 8000, Last: 8099, More: 99}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Give(Port{unix.IPPROTO_TCP, 8090}, Nobody); err != nil {
		t.Fatal(err)
	}
	const tcp, udp, inet, inet6 = unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.AF_INET, unix.AF_INET6
	for _, step := range []struct {
		name         string
		who          *sliver
		family, kind int
		to           unix.Sockaddr
		err          error
		port         uint16
		whose        *sliver // nil: nobody has claimed it
	}{
		{"any address", a, inet, tcp, v4(8000, "0.0.0.0"), nil, 8000, a},
		{"again", a, inet, tcp, v4(8000, "0.0.0.0"), nil, 8000, a},
		{"another sliver", b, inet, tcp, v4(8000, "0.0.0.0"), unix.EADDRINUSE, 8000, a},
		{"another sliver, IPv6", b, inet6, tcp, v6(8000, "::"), unix.EADDRINUSE, 8000, a},
		{"another protocol", b, inet, udp, v4(8000, "0.0.0.0"), nil, 8000, b},
		{"a sliver that may not", stranger, inet, tcp, v4(8000, "0.0.0.0"), nil, 8000, a},
		{"the address of its interface", a, inet, tcp, v4(8001, inner.String()), nil, 8001, a},
		{"another sliver's loopback", b, inet, tcp, v4(8001, "127.0.0.1"), nil, 8001, a},
		{"loopback", a, inet, tcp, v4(8002, "127.0.0.1"), nil, 8002, nil},
		{"loopback, IPv6", a, inet6, tcp, v6(8002, "::1"), nil, 8002, nil},
		{"any address, IPv6", a, inet6, tcp, v6(8003, "::"), nil, 8003, a},
		{"IPv4 as IPv6", a, inet6, udp, v6(8004, "::ffff:127.5.5.5"), nil, 8004, a},
		{"before the range", a, inet, tcp, v4(7999, "0.0.0.0"), nil, 7999, nil},
		{"after the range", a, inet, tcp, v4(8100, "0.0.0.0"), nil, 8100, nil},
		{"the last of the range", a, inet, tcp, v4(8099, "0.0.0.0"), nil, 8099, a},
		{"any port", a, inet, tcp, v4(0, "0.0.0.0"), nil, 0, nil},
		{"nobody's", a, inet, tcp, v4(8090, "0.0.0.0"), unix.EADDRINUSE, 8090, &sliver{}},
	} {
		if err := step.who.bind(step.family, step.kind, step.to); !errors.Is(err, step.err) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		protocol := uint16(unix.IPPROTO_TCP)
		if step.kind == udp {
			protocol = unix.IPPROTO_UDP
		}
		is, claimed := whose(t, c, protocol, step.port)
		if claimed != (step.whose != nil) || claimed && is != step.whose.netns {
			t.Errorf("%s: port %d is claimed: %t, by %d", step.name, step.port, claimed, is)
		}
	}

	// What is released is free; what is given has changed hands; who may bind no longer does so as any other.
	if err := errors.Join(c.Release(Port{unix.IPPROTO_TCP, 8000}), c.Release(Port{unix.IPPROTO_TCP, 8000}),
		c.Give(Port{unix.IPPROTO_TCP, 8001}, b.netns),
		c.Retain(func(n NetNS) bool { return n == b.netns })); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{8000, 8001} {
		if err := b.bind(unix.AF_INET, unix.SOCK_STREAM, v4(port, "0.0.0.0")); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
		if is, _ := whose(t, c, unix.IPPROTO_TCP, uint16(port)); is != b.netns {
			t.Errorf("port %d is not the other sliver's", port)
		}
	}
	if err := a.bind(unix.AF_INET, unix.SOCK_STREAM, v4(8090, "0.0.0.0")); err != nil {
		t.Errorf("a sliver that may no longer claim ports: %v", err)
	}
}

// What a sliver binds beyond what it may claim is bound in the sliver alone.
func TestASliverClaimsAsManyPortsAsItMay(t *testing.T) {
	c := open(t, pins(t), func() {})
	defer func() { _ = c.Close() }()
	a, b := newSliver(t), newSliver(t)
	const most = 2
	for _, s := range []*sliver{a, b} {
		if err := c.Bind(s.netns, Binder{Address: inner, First: 8000, Last: 8099, More: most}); err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []int{8000, 8001, 8002, 8000} {
		if err := a.bind(unix.AF_INET, unix.SOCK_STREAM, v4(port, "0.0.0.0")); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
	for port, err := range map[int]error{8001: unix.EADDRINUSE, 8002: nil} {
		if got := b.bind(unix.AF_INET, unix.SOCK_STREAM, v4(port, "0.0.0.0")); !errors.Is(got, err) {
			t.Errorf("port %d of another sliver: %v, want %v", port, got, err)
		}
	}
	whose, claimed, err := c.Of(Port{unix.IPPROTO_TCP, 8002})
	if whose != b.netns || !claimed || err != nil {
		t.Errorf("port 8002 is %d's: %t, %v", whose, claimed, err)
	}
	if _, claimed, err := c.Of(Port{unix.IPPROTO_UDP, 8002}); claimed || err != nil {
		t.Errorf("a port that nobody has bound: %t, %v", claimed, err)
	}
}

// A process that was killed while it removed the claims leaves links that are attached to nothing.
func TestClaimsThatWereHalfRemovedAreAttachedAnew(t *testing.T) {
	dir := pins(t)
	c := open(t, dir, func() {})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := link.LoadPinnedLink(filepath.Join(dir, objectProgBind4), nil)
	if err == nil {
		err = errors.Join(l.Detach(), l.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	c = open(t, dir, func() {})
	defer func() { _ = c.Close() }()
	s := newSliver(t)
	if err := c.Bind(s.netns, Binder{Address: inner, First: 8000, Last: 8000, More: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.bind(unix.AF_INET, unix.SOCK_STREAM, v4(8000, "0.0.0.0")); err != nil {
		t.Fatal(err)
	}
	if is, _ := whose(t, c, unix.IPPROTO_TCP, 8000); is != s.netns {
		t.Error("it is not claimed")
	}
}

func TestClaimsAreTold(t *testing.T) {
	told := make(chan bool, 1)
	c := open(t, pins(t), func() {
		select {
		case told <- true:
		default:
		}
	})
	defer func() { _ = c.Close() }()
	s := newSliver(t)
	if err := c.Bind(s.netns, Binder{Address: inner, First: 1, Last: 65535, More: 99}); err != nil {
		t.Fatal(err)
	}
	for port := range 2 {
		if err := s.bind(unix.AF_INET, unix.SOCK_DGRAM, v4(port+8000, "0.0.0.0")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing is told")
		}
	}
}

func TestClaimsOutliveTheProcessThatOpenedThem(t *testing.T) {
	dir := pins(t)
	c := open(t, dir, func() {})
	a, b := newSliver(t), newSliver(t)
	for _, s := range []*sliver{a, b} {
		if err := c.Bind(s.netns, Binder{Address: inner, First: 8000, Last: 8000, More: 99}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.bind(unix.AF_INET, unix.SOCK_STREAM, v4(8000, "0.0.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := b.bind(unix.AF_INET, unix.SOCK_STREAM, v4(8000, "0.0.0.0")); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("while nobody has them open: %v", err)
	}
	told := make(chan bool, 10)
	c = open(t, dir, func() { told <- true })
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Error("what was claimed meanwhile is not told")
	}
	if is, _ := whose(t, c, unix.IPPROTO_TCP, 8000); is != a.netns {
		t.Error("the claim is not adopted")
	}
	if err := errors.Join(c.Close(), Remove(dir)); err != nil {
		t.Fatal(err)
	}
	if err := b.bind(unix.AF_INET, unix.SOCK_STREAM, v4(8000, "0.0.0.0")); err != nil {
		t.Errorf("after their end: %v", err)
	}
	if Present(dir) {
		t.Error("something is pinned")
	}
}

func TestThisKernelTellsOfBinds(t *testing.T) {
	testkit.Root(t)
	if err := Supported(); err != nil {
		t.Error(err)
	}
}
