package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The mirror of a router that is paused gets no events, so it does differ from its kernel. That is no difference, and
// no reason to end the pause.
func TestAuditLeavesPauseAlone(t *testing.T) {
	l := newLab(t, neverDiffers(t), func(c *Config) { c.EventRate, c.EventBurst = 100, 500 })
	l.synced()
	s := l.session()
	stop := l.flap()
	testkit.Eventually(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.paused() {
			return errors.New("not paused")
		}
		s.limit.until = time.Now().Add(time.Hour) // over when the test says so
		return nil
	}, 20*time.Second, "the router to be paused")
	stop()
	l.script("ip route add 198.51.100.0/24 via 10.0.1.2")
	l.audited()
	if _, _, err := s.n.verify(t.Context(), func(int) {}); !errors.Is(err, errNoSession) {
		t.Errorf("verify: %v, want %v", err, errNoSession)
	}
	s.mu.Lock()
	if !s.paused() || s.broken != nil {
		t.Errorf("paused until %v, broken: %v", s.limit.until, s.broken)
	}
	s.limit.until = time.Now()
	s.mu.Unlock()
	s.wake()
	l.returns()
	l.leads("198.51.100.1", "10.0.1.2@101")
	l.synced()
	if l.session() != s {
		t.Error("another session")
	}
}

// What the kernel has dropped without an event is the kernel's until a dump: no difference.
func TestWhatADumpWillTellIsNoDifference(t *testing.T) {
	l := newLab(t, neverDiffers(t))
	l.script(`
		ip nexthop add id 7 via 10.0.0.2 dev eth0
		ip route add 192.0.2.0/24 nhid 7
		ip route add 198.51.100.0/24 nexthop via 10.0.0.2 nexthop via 10.0.1.2
		ip route add 203.0.113.0/24 via 10.0.1.2`)
	l.leads("203.0.113.1", "10.0.1.2@101")
	l.synced()
	s := l.session()
	s.mu.Lock()
	s.dump.ended, s.dump.took = time.Now(), time.Hour // the next is due when the test says so
	s.mu.Unlock()
	l.script("ip nexthop del id 7; ip link set eth1 down")
	l.leads("192.0.2.1", "other")
	testkit.Eventually(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if held := s.view.links.all[l.index(1)].held; held == 0 || s.dump.due.Before(time.Now()) {
			return fmt.Errorf("held %d, due %v", held, s.dump.due)
		}
		return nil
	}, 5*time.Second, "the link to be held")
	l.verify()
	l.audited()
	s.mu.Lock()
	s.dump.took, s.dump.due = 0, time.Now()
	s.mu.Unlock()
	s.wake()
	l.leads("192.0.2.1", "nowhere")
	l.leads("203.0.113.1", "nowhere")
	l.leads("198.51.100.1", "10.0.0.2@100")
	l.synced()
	if l.session() != s {
		t.Error("another session")
	}
}

// neverDiffers has the audit on, which must find nothing.
func neverDiffers(t *testing.T) func(*Config) {
	t.Helper()
	return func(c *Config) {
		c.AuditRate = 10_000
		c.OnDifference = func(_ string, found []Difference) { t.Errorf("the audit found %v", found) }
	}
}

// audited has the router audited, besides what the mirror does by itself.
func (l *lab) audited() { l.mirror.auditOne(l.Context(), l.name) }

func TestRefusal(t *testing.T) {
	for no, want := range map[unix.Errno]error{
		unix.EOPNOTSUPP: nil, unix.EAFNOSUPPORT: nil, unix.EPERM: unix.EPERM, unix.ENOBUFS: unix.ENOBUFS,
	} {
		m := rtnl.Message{Kind: unix.NLMSG_ERROR, Data: binary.NativeEndian.AppendUint32(nil,
			uint32(-int32(no)))}
		if err := refusal(m); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", no, err, want)
		}
	}
	if err := refusal(rtnl.Message{}); !errors.Is(err, rtnl.ErrMalformed) {
		t.Errorf("%v, want %v", err, rtnl.ErrMalformed)
	}
}

// Verify names what differs: here it is made to.
func TestVerifyNamesDifferences(t *testing.T) {
	l := newLab(t)
	l.script("ip route add 192.0.2.0/24 via 10.0.0.2; " +
		"ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent")
	l.synced()
	s := l.session()
	forged := fib.Route{Kind: fib.Unicast, Paths: []fib.Path{{Port: 101, Gateway: netip.MustParseAddr("10.0.1.5"),
		Weight: 1}}}
	for _, err := range []error{
		s.out.SetRoute(netip.MustParsePrefix("192.0.2.0/24"), forged),
		s.out.SetRoute(netip.MustParsePrefix("198.51.100.0/24"), forged),
		s.out.SetNeighbour(100, netip.MustParseAddr("10.0.0.2"), fib.Neighbour{MAC: [6]byte{2, 0, 0, 0, 0, 9}}),
		s.out.DeleteRoute(netip.MustParsePrefix("10.0.2.0/24")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	found, err := l.mirror.Verify(t.Context(), l.name)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, d := range found {
		fmt.Fprintln(&all, d)
	}
	for _, want := range []string{
		"192.0.2.0/24: kernel via 10.0.0.2 dev eth0, mirror via 10.0.1.5 dev eth1\n",
		"198.51.100.0/24: kernel has no route, mirror via 10.0.1.5 dev eth1\n",
		"10.0.2.0/24: kernel dev eth2, mirror has no route\n",
		"neighbour 10.0.0.2 dev eth0: kernel is at 020000000002, mirror is at 020000000009\n",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("missing %q in\n%s", want, all.String())
		}
	}
}

// The audit finds what Verify finds, reports it, and has the node read again.
func TestAuditRepairs(t *testing.T) {
	maps := make(chan []Difference, 16)
	l := newLab(t, func(c *Config) {
		c.AuditRate = 10_000
		c.OnDifference = func(_ string, found []Difference) { maps <- found }
	})
	l.script("ip route add 192.0.2.0/24 via 10.0.0.2")
	l.leads("192.0.2.1", "10.0.0.2@100")
	if err := l.session().out.SetRoute(netip.MustParsePrefix("198.51.100.0/24"),
		fib.Route{Kind: fib.Reject}); err != nil {
		t.Fatal(err)
	}
	select {
	case found := <-maps:
		if len(found) != 1 && len(found) != 2 {
			t.Errorf("found %v", found)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the audit found nothing")
	}
	l.leads("198.51.100.1", "nowhere")
	l.synced()
}
