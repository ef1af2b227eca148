package signs

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func namespace(t *testing.T) (ns *os.File) {
	t.Helper()
	if err := netns.New(func() (err error) {
		ns, err = netns.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// in runs something in a namespace.
func in(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	if err := netns.In(ns, f); err != nil {
		t.Fatal(err)
	}
}

func openSocket() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func writeMTU() error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/lo/mtu", []byte("1400"), 0)
}

func TestSignsAreToldAtOnceAndOfTheirNamespaceAlone(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, b := namespace(t), namespace(t)
	told := make(chan Sign, 100)
	stop, err := s.Watch(a, func(s Sign) { told <- s })
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan Sign, 100)
	stopSecond, err := s.Watch(a, func(s Sign) { second <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer stopSecond()
	for _, c := range []struct {
		what string
		do   func() error
		want Sign
	}{
		{"a packet socket", openSocket, Sign{}},
		{"a sysctl", writeMTU, Sign{Sysctl: "net/ipv6/conf/lo/mtu"}},
	} {
		in(t, b, c.do) // nobody wants to know
		begun := time.Now()
		in(t, a, c.do)
		for _, ch := range []chan Sign{told, second} {
			select {
			case got := <-ch:
				t.Logf("%s is told after %v", c.what, time.Since(begun))
				if got != c.want {
					t.Errorf("%s: told of %+v", c.what, got)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%s is not told", c.what)
			}
		}
	}
	in(t, a, func() error { _, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/mtu"); return err })
	stop()
	in(t, a, openSocket)
	if got := <-second; got != (Sign{}) {
		t.Errorf("the other watch is told of %+v", got)
	}
	if len(told) > 0 {
		t.Errorf("a watch that ended is told of %+v", <-told)
	}
}

// Much else allocates as packet sockets do: programs of filters, and (since Linux 6.17) the first thread of a process.
func TestNothingElseIsTakenForAPacketSocket(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ns := namespace(t)
	told := make(chan Sign, 100)
	stop, err := s.Watch(ns, func(s Sign) { told <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	in(t, ns, attachFilter)
	in(t, ns, func() error { return exec.Command(os.Args[0], "-test.run=^$").Run() }) // has threads
	in(t, ns, openSocket)
	in(t, ns, writeMTU)
	want := []Sign{{}, {Sysctl: "net/ipv6/conf/lo/mtu"}}
	for i, w := range want {
		select {
		case got := <-told:
			if got != w {
				t.Fatalf("sign %d is %+v, not %+v", i, got, w)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%+v is not told", w)
		}
	}
}

// attachFilter has the kernel make a BPF program.
func attachFilter() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	all := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(all)), Filter: &all[0]})
	return errors.Join(err, unix.Close(fd))
}

func TestNoSignsTellNothing(t *testing.T) {
	var s *Signs
	stop, err := s.Watch(nil, func(Sign) { t.Error("told") })
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
