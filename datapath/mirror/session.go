package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// session is one netlink subscription and the view that it keeps.
//
//	begin -> dump part by part, events in between -> end: trusted -> events
//	           ^                                                      |
//	           +-- something is open (soft), or nothing is sure (distrust: off the fast path meanwhile) --+
type session struct {
	n     *node
	out   *fib.Router
	sock  atomic.Pointer[socket]
	woken atomic.Bool

	published atomic.Pointer[Status] // without the counters of earlier sessions

	refresh atomic.Int64 // when a dump was asked for from outside, in ns since 1970; 0: it was not

	// Once it had to drop events, the kernel goes on dropping them, without a word, until the socket is empty
	// (NETLINK_S_CONGESTED). So no dump is asked for before.
	drain bool

	mu      sync.Mutex // held while the view and the maps change
	view    *view
	dump    dump
	limit   limiter
	broken  error // why the session has to end; nil: it need not
	trusted bool
	why     string // why it is not trusted
	enabled perFamily[bool]
	reasons perFamily[[]string] // why not
	resyncs int
	left    perFamily[int] // how often it was taken off the fast path
	lag     time.Duration  // from the arrival of the last event to the maps
}

func newSession(n *node, out *fib.Router) (*session, error) {
	sock, err := openSocket(n.router.NetNS, n.cfg.buffer)
	if err != nil {
		return nil, err
	}
	s := &session{
		n: n, out: out,
		view: newView(out, n.router.Legs),
		dump: dump{part: parts},
		limit: limiter{rate: float64(n.cfg.EventRate), burst: float64(n.cfg.EventBurst),
			tokens: float64(n.cfg.EventBurst)},
		why: "its routes are being read",
	}
	s.sock.Store(sock)
	s.publish()
	return s, nil
}

// wake lets run look at what has changed.
func (s *session) wake() {
	s.woken.Store(true)
	_ = s.sock.Load().wakeAt(time.Unix(1, 0))
}

func (s *session) run(ctx context.Context) error {
	if err := s.sock.Load().subscribe(true); err != nil {
		return err
	}
	s.dump.due = time.Now()
	for ctx.Err() == nil {
		if err := s.tick(time.Now()); err != nil {
			return err
		}
		err := s.sock.Load().receive(s.take, !s.drain && !s.dump.waiting)
		switch {
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, errEmpty) && s.dump.waiting:
			if err := s.reopen(); err != nil {
				return err
			}
		case errors.Is(err, errEmpty):
			s.drain = false
		case errors.Is(err, errForeign):
			if err := s.foreign(); err != nil {
				return err
			}
		case errors.Is(err, errOverrun), errors.Is(err, rtnl.ErrMalformed), errors.Is(err, errUnexpected):
			s.drain = true
			if err := s.resync(err.Error()); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return ctx.Err()
}

// reopen gives up a socket whose dump has come to a stop. The kernel goes on with a dump when somebody reads: there
// is always more until its end, unless events left no room for it at that moment. Then nothing makes it go on, and no
// other dump is possible there.
func (s *session) reopen() error {
	sock, err := openSocket(s.n.router.NetNS, s.n.cfg.buffer)
	if err != nil {
		return err
	}
	s.sock.Swap(sock).close()
	s.mu.Lock()
	s.dump.waiting, s.dump.part = false, parts
	paused := s.paused()
	s.mu.Unlock()
	s.drain = false
	if paused {
		return nil
	}
	if err := sock.subscribe(true); err != nil {
		return err
	}
	return s.resync("the kernel did not finish telling its routes")
}

// tick does what is due, and says when to be woken.
func (s *session) tick(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if s.limit.over(now) {
		if err := s.sock.Load().subscribe(true); err != nil {
			return err
		}
		s.dump.due = now
	}
	s.refreshDue(now)
	if s.dump.idle() && s.dump.isDue(now) && !s.drain {
		if err := s.request(now); err != nil {
			return err
		}
	}
	if err := s.enable(); err != nil {
		return err
	}
	s.publish()
	next := s.dump.due
	switch {
	// run does not wait; and after a deadline that has passed, it would not even read
	case s.drain || !s.dump.idle():
		next = time.Time{}
	case s.paused():
		next = s.limit.until
	default:
		next = s.nextRefresh(next)
	}
	if err := s.sock.Load().wakeAt(next); err != nil {
		return err
	}
	if s.woken.Swap(false) { // between enable and wakeAt
		return s.sock.Load().wakeAt(time.Unix(1, 0))
	}
	return nil
}

// take takes over what one read gave.
func (s *session) take(b []byte, events bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	arrived, before := time.Now(), s.view.events
	for len(b) > 0 {
		m, rest, err := rtnl.NextMessage(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case !events && m.Seq == s.sock.Load().seq:
			err = s.reply(m)
		case !events || s.paused(): // answers that nobody waits for any more; what came before the pause
		default:
			err = s.view.event(m, s.dump.part)
		}
		if err != nil {
			return err
		}
	}
	if before == s.view.events {
		return nil
	}
	s.lag = time.Since(arrived)
	return s.look(arrived, s.view.events-before)
}

// look looks at what events have left open.
func (s *session) look(now time.Time, events int) error {
	if s.limit.exceeded(now, events) {
		return s.pause(now, fmt.Sprintf("its routes and neighbours change more than %.0f times a second",
			s.limit.rate))
	}
	if s.view.rib.stale != "" && s.dump.idle() && s.dump.due.IsZero() {
		s.dump.schedule(now)
	}
	return s.enable()
}

// foreign is for a datagram that is not the kernel's: it says nothing, but costs as much as an event.
func (s *session) foreign() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.paused() || !s.limit.exceeded(now, 1) {
		return nil
	}
	return s.pause(now, errForeign.Error())
}

func (s *session) paused() bool { return !s.limit.until.IsZero() }

// pause leaves a node that costs more than it is worth to its kernel, and receives no events for a while: to a
// socket that is in no group, the kernel alone can send.
func (s *session) pause(now time.Time, why string) error {
	if err := s.sock.Load().subscribe(false); err != nil {
		return err
	}
	s.limit.pause(now)
	s.dump.interrupted = true
	s.dump.due = time.Time{}
	return s.distrust(why)
}

// resync reads everything anew: what the maps hold is suspect.
func (s *session) resync(why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused() { // it will be
		return nil
	}
	now := time.Now()
	s.dump.interrupted = true
	if s.limit.exceeded(now, resyncCost) {
		return s.pause(now, "repeatedly: "+why)
	}
	if s.dump.idle() {
		s.dump.schedule(now)
	}
	return s.distrust(why)
}

func (s *session) distrust(why string) error {
	if s.trusted {
		s.n.log.Warn("the router forwards in its kernel until its routes have been read anew", "reason", why)
	}
	s.trusted, s.why = false, why
	s.resyncs++
	return s.enable()
}

// request asks for the next part of a dump, the first if none is under way.
func (s *session) request(now time.Time) error {
	d := &s.dump
	d.due = time.Time{}
	if d.part == parts {
		d.part = 0
		d.begun = now
		d.interrupted = false
		s.view.begin()
	}
	d.waiting = true
	s.view.unsure = false
	if err := s.sock.Load().request(d.part); err != nil {
		return fmt.Errorf("ask for a dump: %w", err)
	}
	return nil
}

// reply takes over a message of the dump that is under way.
func (s *session) reply(m rtnl.Message) error {
	if m.Flags&unix.NLM_F_DUMP_INTR != 0 {
		s.dump.interrupted = true
	}
	switch m.Kind {
	case unix.NLMSG_DONE:
		return s.partDone()
	case unix.NLMSG_ERROR:
		return s.refused(m)
	}
	return s.view.confirm(m)
}

// refused: the kernel does not dump this part.
func (s *session) refused(m rtnl.Message) error {
	switch err := refusal(m); {
	case err == nil:
		return s.partDone()
	case errors.Is(err, unix.ENOBUFS): // events have filled the socket meanwhile
		s.dump.waiting, s.dump.part = false, parts
		return errOverrun
	default:
		return fmt.Errorf("dump part %d: %w", s.dump.part, err)
	}
}

// partDone goes on with the next part, if this one is whole.
func (s *session) partDone() error {
	d := &s.dump
	now := time.Now()
	d.waiting = false
	switch {
	case s.paused():
		d.part = parts
		return nil
	case d.interrupted:
		d.part = parts
		d.end(now)
		d.schedule(now)
		return nil
	case d.part == partRoutes6 && s.view.unsure:
		d.retry(now)
		return nil
	}
	if err := s.view.sweep(d.part); err != nil {
		return err
	}
	d.part++
	d.repeats = 0
	if d.part < parts {
		return s.request(now)
	}
	d.end(now)
	return s.synchronised(now)
}

func (s *session) synchronised(now time.Time) error {
	if err := s.view.end(); err != nil {
		return err
	}
	if !s.trusted {
		s.trusted, s.why = true, ""
		s.n.log.Debug("routes read", "took", s.dump.took)
	}
	if s.view.rib.stale != "" {
		s.dump.schedule(now)
	}
	if err := s.enable(); err != nil || s.view.links.live {
		return err
	}
	s.n.live(s.out)
	// The roots are in place: the legs move from an earlier process's router to a whole one.
	return s.view.links.goLive()
}

// enable puts the router on the fast path, or takes it off, as things are.
func (s *session) enable() error {
	ipv4, ipv6 := s.n.reasons()
	own4, own6 := s.view.reasons()
	s.reasons = perFamily[[]string]{append(own4, ipv4...), append(own6, ipv6...)}
	var now perFamily[bool]
	for f := range families {
		now[f] = s.trusted && len(s.reasons[f]) == 0
	}
	if now == s.enabled {
		return nil
	}
	if err := s.out.Enable(now[family4], now[family6]); err != nil {
		return err
	}
	for f := range families {
		if s.enabled[f] && !now[f] {
			s.left[f]++
		}
	}
	s.enabled = now
	s.n.log.Info("fast path", "ipv4", now[family4], "ipv6", now[family6], "why", s.why,
		"why4", s.reasons[family4], "why6", s.reasons[family6])
	return nil
}
