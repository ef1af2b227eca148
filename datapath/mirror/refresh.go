package mirror

import (
	"strings"
	"time"

	"github.com/pergola-net/pergola/datapath/mirror/signs"
)

// net.ipv6.conf.IF.mtu decides which IPv6 packets an interface takes, and the kernel tells nobody that it was written
// (addrconf_sysctl_mtu(), Linux 6.18): the next message about the interface has it, and so has a dump. A sign tells
// that a process is writing it; the dump that follows is no suspicion, and the router stays on the fast path.

func (n *node) signed(s signs.Sign) {
	if !strings.HasPrefix(s.Sysctl, "net/ipv6/conf/") || !strings.HasSuffix(s.Sysctl, "/mtu") {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != nil {
		n.session.askRefresh(time.Now())
	}
}

// askRefresh has everything dumped again, while the view stays trusted.
func (s *session) askRefresh(now time.Time) {
	s.refresh.Store(now.UnixNano())
	s.wake()
}

// settled is when what a sign told of has been done for certain. A dump begins at once, and another one then.
const settled = 100 * time.Millisecond

// refreshDue schedules the dumps that a refresh asks for. s.mu is held.
func (s *session) refreshDue(now time.Time) {
	asked := s.refresh.Load()
	if asked == 0 || !s.dump.idle() || !s.dump.due.IsZero() || s.paused() {
		return
	}
	at := time.Unix(0, asked)
	switch {
	case s.dump.begun.Before(at):
	case !now.Before(at.Add(settled)):
		s.refresh.CompareAndSwap(asked, 0)
	default:
		return
	}
	s.view.rib.stale = "net.ipv6.conf.*.mtu was written"
	s.dump.schedule(now)
}

// nextRefresh is when the session is to be woken for a refresh, if that is earlier than next; zero: never.
func (s *session) nextRefresh(next time.Time) time.Time {
	asked := s.refresh.Load()
	if asked == 0 {
		return next
	}
	if at := time.Unix(0, asked).Add(settled); next.IsZero() || at.Before(next) {
		return at
	}
	return next
}
