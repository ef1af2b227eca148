package eligible

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/mirror/signs"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

var errOn = errors.New("it is on the fast path")

func newSigns(t *testing.T) *signs.Signs {
	t.Helper()
	s, err := signs.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listen opens a packet socket as libpcap does: it receives nothing before it is bound.
func (b *watched) listen() (stop func()) {
	b.t.Helper()
	fd := -1
	err := netns.In(b.ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() { _ = unix.Close(fd) }
}

// A node leaves the fast path when a packet socket is opened in it, not when one is found.
func TestPacketSocketIsNoticedAtOnce(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	w := newWatcher(t, Config{Signs: newSigns(t), Interval: time.Hour, Audit: time.Hour})
	b := newWatched(t, w)
	var slowest time.Duration
	for range 7 {
		begun := time.Now()
		stop := b.listen()
		testkit.Eventually(
			t,
			func() error { return b.off() },
			5*time.Second,
			"the node to be off the fast path",
		)
		slowest = max(slowest, time.Since(begun))
		b.await("packet socket on all interfaces", "packet socket on all interfaces")
		stop()
		w.pollNow()
		b.await("", "")
	}
	t.Logf("the slowest of 7 sockets was noticed after %v", slowest)
}

// A kernel that tells nothing is asked more often than once an interval, where that costs little.
func TestPacketSocketIsNoticedSoonWithoutSigns(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: time.Hour, Audit: time.Hour}))
	begun := time.Now()
	stop := b.listen()
	b.await("packet socket on all interfaces", "packet socket on all interfaces")
	t.Logf("noticed after %v", time.Since(begun))
	stop()
	b.await("", "")
}

// A socket that is never bound keeps no node in its kernel.
func TestUnboundPacketSocketIsLeftToPolls(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Signs: newSigns(t), Interval: time.Hour, Audit: time.Hour}))
	fd := -1
	err := netns.In(b.ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	testkit.Eventually(t, func() error { return b.off() }, 5*time.Second, "the node to be off the fast path")
	b.await("", "")
}

// Parameters that the kernel does not announce are followed when they are written.
func TestParametersAreFollowedAtOnce(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Signs: newSigns(t), Interval: time.Hour, Audit: time.Hour}))
	for _, name := range []string{"conf/all/accept_redirects", "ip_forward_use_pmtu"} {
		b.run("echo 1 >/proc/sys/net/ipv4/" + name)
		b.await("is 1", "")
		b.run("echo 0 >/proc/sys/net/ipv4/" + name)
		b.await("", "")
	}
}

// off is nil if the node is off the fast path for both families.
func (b *watched) off() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.verdict.IPv4) == 0 || len(b.verdict.IPv6) == 0 {
		return errOn
	}
	return nil
}
