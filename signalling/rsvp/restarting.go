package rsvp

import (
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// A neighbour that restarts (RFC 3473, section 9.5):
//
//	heard --silent--> awaited --the same instance--> heard
//	                     |------another instance---> recovering --its recovery time--> heard
//	                     '------its restart time---> lost
//	heard --another instance--> recovering, or without recovery time heard
//
// While it is awaited, nothing is sent to it but Hellos, and what is shared with it does not expire. While it recovers,
// Paths to it have its label (Recovery_Label), and one from it is answered by the Resv at once.

// bounded is a time that a neighbour asks for, within what it can have: also "any time" (0xffffffff) ends.
func bounded(milliseconds uint32) time.Duration {
	return min(time.Duration(milliseconds)*time.Millisecond, maxPeriod)
}

// awaited tells whether a neighbour is silent, and its state is kept.
func (n *neighbour) awaited() bool { return n.before != 0 }

// recovers tells whether a neighbour that has restarted is getting its state back.
func (n *neighbour) recovers(now time.Duration) bool { return !n.awaited() && n.until > now }

// awaits tells whether nothing is sent to a neighbour because it is to come back.
func (r *Router) awaits(p place) bool {
	n := r.neighbours[p]
	return n != nil && n.awaited()
}

func (r *Router) recovers(p place) bool {
	n := r.neighbours[p]
	return n != nil && n.recovers(r.now)
}

// silence begins to wait for a neighbour of which nothing is heard any more, or gives it up.
func (r *Router) silence(n *neighbour) {
	restart := bounded(n.cap.Restart)
	n.before, n.instance = n.instance, 0
	if restart == 0 {
		r.giveUp(n)
		return
	}
	n.until = r.now + restart
	r.event(Restarting, Key{}, message.ErrorSpec{Node: n.place.addr}, nil)
	r.keep(n.place, n.until)
}

func (r *Router) giveUp(n *neighbour) {
	n.before, n.until = 0, 0
	r.event(Lost, Key{}, message.ErrorSpec{Node: n.place.addr}, nil)
	r.abandon(n.place)
}

// keep has what is shared with a neighbour live until a time at least.
func (r *Router) keep(p place, until time.Duration) {
	for _, s := range r.lsps {
		if s.comesFrom(p) {
			spare(&s.expires, &s.spared, until)
		}
		if s.goesTo(p) && s.resv != nil {
			spare(&s.resv.expires, &s.resv.spared, until)
		}
		r.schedule(s)
	}
}

// spare has a state live until a time at least, once for each refresh that comes: what nobody refreshes ends, also
// where a link or a neighbour is lost and found again and again. (Not where a neighbour restarts each time: it has its
// time to recover, whatever was before.)
func spare(expires *time.Duration, spared *bool, until time.Duration) {
	if !*spared && *expires < until {
		*expires, *spared = until, true
	}
}

// recover has what was kept for a neighbour that is back live for as long as it recovers, or as if it had just been
// refreshed, and no longer.
func (r *Router) recover(n *neighbour) {
	for _, s := range r.lsps {
		if s.comesFrom(n.place) && s.spared {
			s.expires = min(max(s.expires, n.until), max(n.until, r.now+lifetime(s.path.period)))
		}
		if s.goesTo(n.place) && s.resv != nil && s.resv.spared {
			s.resv.expires = min(max(s.resv.expires, n.until), max(n.until, r.now+lifetime(s.resv.period)))
		}
		r.schedule(s)
	}
}

// returned is what a Hello with an instance means for a neighbour's state.
func (r *Router) returned(n *neighbour, instance uint32, c message.RestartCap) {
	before, awaited := n.instance, n.awaited()
	if awaited {
		before = n.before
	}
	n.cap, n.before = c, 0
	switch {
	case before != 0 && before != instance:
		n.recovery = bounded(c.Recovery)
		n.until = r.now + n.recovery
		r.event(Restarted, Key{}, message.ErrorSpec{Node: n.place.addr}, nil)
		if n.recovery > 0 {
			r.keep(n.place, n.until)
		}
		r.recover(n)
		r.resend(n)
	case awaited: // it has heard nothing for a while, but knows all
		n.until = 0
		r.recover(n)
		r.resend(n)
	}
}

// restartCap is how long this router takes to restart and to recover.
func (r *Router) restartCap() []message.Object {
	if r.config.Restart == 0 {
		return nil
	}
	return []message.Object{message.RestartCap{Restart: uint32(r.config.Restart / time.Millisecond),
		Recovery: uint32(r.recoveryLeft() / time.Millisecond)}}
}
