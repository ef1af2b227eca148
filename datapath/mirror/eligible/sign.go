package eligible

import (
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/datapath/mirror/signs"
)

// A sign comes before what it tells of. A parameter is written within moments. A packet socket is bound, and gets its
// filter, soon after it was opened (libpcap: some milliseconds): from the sign on, and until it is seen what the socket
// receives, the node's kernel forwards.
const (
	applied     = 5 * time.Millisecond   // then a parameter is as it was written
	bound       = 100 * time.Millisecond // then a socket has been bound, or is to be watched
	boundAtLast = time.Second            // a socket that receives nothing by then is left to the polls

	opening = "being examined: a packet socket was opened"
)

// pollBuffers are for looks that signs ask for.
var pollBuffers = sync.Pool{New: func() any { b := newPollBuffer(); return &b }}

// signed takes a sign to account. It does not wait.
func (n *node) signed(s signs.Sign) {
	now := time.Now()
	var about areas
	n.mu.Lock()
	switch {
	case s.Sysctl == "":
		n.opened, n.stale = now, true
		about = packets.alone()
	case isLearnt(s.Sysctl):
		n.written, n.stale = now, true
		about = forwarding.alone()
	}
	n.mu.Unlock()
	if about != 0 {
		n.mark(about)
	}
}

// isLearnt reports whether a parameter is one of those that lookAtForwarding reads, and that nothing announces.
func isLearnt(sysctl string) bool {
	for _, l := range learns {
		if strings.HasSuffix(l.path, "/"+sysctl) {
			return true
		}
	}
	return strings.HasPrefix(sysctl, "net/ipv4/conf/") && strings.HasSuffix(sysctl, "/accept_redirects")
}

// unapplied is how long to wait before what a sign told of can be looked at.
func (n *node) unapplied(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.written
	if n.opened.After(last) && n.opened.Add(applied).After(now) {
		last = n.opened
	}
	if last.IsZero() {
		return 0
	}
	return last.Add(applied).Sub(now)
}

// isOpening reports whether a packet socket was opened of which it is not known yet what it receives.
func (n *node) isOpening(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opened.IsZero() {
		return false
	}
	age := now.Sub(n.opened)
	if age < bound || age < boundAtLast && n.hasUnbound() {
		return true
	}
	n.opened = time.Time{}
	return false
}

// hasUnbound reports whether there is a packet socket that receives nothing. n.mu is held.
func (n *node) hasUnbound() bool {
	for rest := n.polled.packets; len(rest) >= 4; {
		size := byteOrder.Uint32(rest)
		if s, err := parsePacketSocket(rest[4 : 4+size]); err == nil && s.proto == 0 {
			return true
		}
		rest = rest[4+size:]
	}
	return false
}
