package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// Root in a node can send to the groups that the mirror listens to. All of it is ignored, the node is left to its
// kernel, and nobody else notices.
func TestFloodOfForgedEvents(t *testing.T) {
	l := newLab(t, func(c *Config) { c.EventRate, c.EventBurst = 100, 500 })
	calm := l.another()
	l.synced()
	calm.fastPath(true, true, "")
	fd := l.rawSocket()
	forged := encode(kroute{
		prefix: netip.MustParsePrefix("203.0.113.0/24"), table: unix.RT_TABLE_MAIN, kind: unix.RTN_UNICAST,
		paths: []path{{link: l.index(0), gateway: netip.MustParseAddr("10.0.0.2"), weight: 1}},
	}.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE))

	err := unix.Sendto(fd, forged, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: l.netlinkPort()})
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("send to the mirror's port: %v, want %v", err, unix.ECONNREFUSED)
	}

	group := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_IPV4_ROUTE - 1)}
	long := make([]byte, 100<<10) // more than is read at once
	stop := l.often(func() error {
		err := unix.Sendto(fd, long, 0, group)
		for range 100 {
			err = errors.Join(err, unix.Sendto(fd, forged, 0, group))
		}
		return err
	})
	testkit.Eventually(t, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil || s.IPv4.FastPath || len(s.IPv4.Why) == 0 ||
			!strings.Contains(s.IPv4.Why[0], errForeign.Error()) {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return l.unsubscribed()
	}, 20*time.Second, "the node to be left to its kernel")
	calm.goesOn(10)
	stop()
	l.returns()
	l.leads("203.0.113.1", "nowhere")
	l.synced()
	calm.synced()
}

// A node whose routes change 10,000 times a second is left to its kernel, and the others do not notice.
func TestFlapDisturbsNobody(t *testing.T) {
	l := newLab(t, func(c *Config) { c.EventRate, c.EventBurst = 2_000, 5_000 })
	calm := l.another()
	l.synced()
	calm.fastPath(true, true, "")
	stop := l.flap()
	calm.goesOn(10)
	testkit.Eventually(t, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil || s.IPv4.FastPath || len(s.IPv4.Why) == 0 ||
			!strings.Contains(s.IPv4.Why[0], "more than 2000 times a second") {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 20*time.Second, "the node to be left to its kernel")
	calm.goesOn(10)
	stop()
	l.returns()
	l.synced()
	calm.synced()
}

// goesOn sees some changes arrive, and the router stay on the fast path.
func (l *lab) goesOn(changes int) {
	l.Helper()
	for i := range changes {
		l.script(fmt.Sprintf("ip route replace 192.0.2.0/24 via 10.0.%d.2", i%2))
		l.leads("192.0.2.1", fmt.Sprintf("10.0.%d.2@%d", i%2, l.ports[i%2]))
	}
	if s, err := l.mirror.Status(l.name); err != nil || !s.IPv4.FastPath || s.Resyncs > 0 {
		l.Errorf("%s: %+v, %v", l.name, s, err)
	}
}

func (l *lab) returns() {
	l.Helper()
	testkit.Eventually(l, func() error {
		if s, err := l.mirror.Status(l.name); err != nil || !s.IPv4.FastPath {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, time.Minute, l.name+" to return to the fast path")
}

// rawSocket is a netlink socket of root in the node.
func (l *lab) rawSocket() int {
	l.Helper()
	fd := -1
	err := netns.In(l.ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// netlinkPort is that of the mirror's socket.
func (l *lab) netlinkPort() (port uint32) {
	l.Helper()
	var failed error
	err := l.session().sock.Load().raw.Control(func(fd uintptr) {
		var a unix.Sockaddr
		if a, failed = unix.Getsockname(int(fd)); failed == nil {
			port = a.(*unix.SockaddrNetlink).Pid
		}
	})
	if err = errors.Join(err, failed); err != nil {
		l.Fatal(err)
	}
	return port
}

// unsubscribed is no error if the mirror's socket is in no group: then a flood costs nothing.
func (l *lab) unsubscribed() error {
	var groups int
	var failed error
	err := l.session().sock.Load().raw.Control(func(fd uintptr) {
		groups, failed = unix.GetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_LIST_MEMBERSHIPS)
	})
	if groups != 0 {
		failed = fmt.Errorf("the mirror's socket is in groups %#x", groups)
	}
	return errors.Join(err, failed)
}

// often does something a hundred times a second, and gives what ends it.
func (l *lab) often(do func() error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var err error
		for err == nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				err = do()
			}
		}
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(stop)
	return stop
}

// flap changes 10,000 routes a second.
func (l *lab) flap() (stop func()) {
	fd := l.rawSocket()
	const batch = 100
	var messages [2][]byte // a datagram may hold many
	for i := range batch {
		r := kroute{
			prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}),
				24), table: unix.RT_TABLE_MAIN, kind: unix.RTN_UNICAST,
			paths: []path{{link: l.index(0), gateway: netip.MustParseAddr("10.0.0.2"), weight: 1}},
		}
		for n, kind := range []uint16{unix.RTM_NEWROUTE, unix.RTM_DELROUTE} {
			messages[n] = append(messages[n], encode(r.message(kind,
				unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_REPLACE))...)
		}
	}
	round := 0
	return l.often(func() error {
		round++
		return unix.Sendto(fd, messages[round%2], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
}

// BenchmarkBeside measures from a change in one router to the change in the maps, while another flaps 10,000 routes a
// second.
func BenchmarkBeside(b *testing.B) {
	for _, c := range []struct {
		title string
		flaps bool
		rate  int // to which a node is followed
	}{{"nothing", false, 1e9}, {"a flap that is followed", true, 1e9}, {"a flap that is limited", true, 2_000}} {
		b.Run(c.title, func(b *testing.B) {
			l := newLab(b, func(cfg *Config) {
				cfg.EventRate, cfg.EventBurst, cfg.Log = c.rate,
					min(c.rate, 50_000), nil
			})
			calm := l.another()
			l.synced()
			calm.synced()
			if c.flaps {
				defer l.flap()()
			}
			if c.rate < 1e9 {
				testkit.Eventually(b, func() error {
					if s, err := l.mirror.Status(l.name); err != nil || s.IPv4.FastPath {
						return fmt.Errorf("%+v, %w", s, err)
					}
					return nil
				}, 20*time.Second, "the flapping node to be left to its kernel")
			}
			out, addr := calm.session().out, netip.MustParseAddr("192.0.2.1")
			calm.measure(b, func(i int) bool {
				r := out.Lookup(addr)
				return len(r.Paths) == 1 && r.Paths[0].Port == calm.ports[i%2]
			})
		})
	}
}
