package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/test/testkit"
)

// A router that is paused hears nothing, so it does differ from its kernel. That is no difference, and no reason to end the pause.
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

// What the kernel has dropped without a word is the kernel's until a dump tells: no difference.
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
		m := message{kind: unix.NLMSG_ERROR, data: binary.NativeEndian.AppendUint32(nil, uint32(-int32(no)))}
		if err := m.refusal(); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", no, err, want)
		}
	}
	if err := (message{}).refusal(); !errors.Is(err, errMalformed) {
		t.Errorf("%v, want %v", err, errMalformed)
	}
}
