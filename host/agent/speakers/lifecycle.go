package speakers

import (
	"errors"
	"maps"
	"time"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
)

// end is how often a router's speaker has ended by itself, or could not begin.
type end struct {
	backoff
	netns uint64
}

// backoff is when what has failed is tried again.
type backoff struct {
	tries  int
	notYet time.Time // it is not tried again before
}

// The pauses, and how long a speaker runs until its end is the first one again.
const (
	pause        = time.Second
	longestPause = 20 * time.Second
	steady       = time.Minute
)

// backOff lets time pass before the next try: ever more.
func (b *backoff) backOff(now time.Time) {
	b.notYet = now.Add(min(pause<<b.tries, longestPause))
	b.tries = min(b.tries+1, 5)
}

// forgetBroken forgets why routers could not speak that are not to speak any more.
func (s *Speakers) forgetBroken(want map[sliver.ID]*Router) {
	maps.DeleteFunc(s.ends, func(id sliver.ID, e *end) bool {
		return want[id] == nil || want[id].NetNS != e.netns // a router that has started again is another one
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.broken, func(id sliver.ID, _ error) bool { return want[id] == nil })
}

// noteEnd notes that a speaker has ended by itself.
func (s *Speakers) noteEnd(r *router, now time.Time) {
	if now.Sub(r.began) >= steady {
		delete(s.ends, r.id)
	}
	s.pause(r.id, r.wanted().NetNS, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken[r.id] = r.err; r.err == nil {
		s.broken[r.id] = errors.New("its speaker has ended")
	}
}

// pause lets time pass before a router is to speak again.
func (s *Speakers) pause(id sliver.ID, netns uint64, now time.Time) {
	if s.ends[id] == nil {
		s.ends[id] = &end{netns: netns}
	}
	s.ends[id].backOff(now)
}

// start makes a router speak; nil: it cannot, or it is not to be tried yet.
func (s *Speakers) start(id sliver.ID, want *Router, now time.Time) *router {
	if e := s.ends[id]; e != nil && now.Before(e.notYet) {
		return nil
	}
	r, err := s.newRouter(id, want, now)
	if err != nil {
		s.pause(id, want.NetNS, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.broken[id] == nil && !errors.Is(err, netns.ErrGone) {
			s.log.Warn("speak RSVP", "router", id.String(), "error", err)
		}
		s.broken[id] = err
		return nil
	}
	delete(s.broken, id)
	s.running[id], s.known[id] = r, r
	return r
}

// stop ends a router's speaker. Its labels lead on.
func (s *Speakers) stop(r *router) {
	if err := r.stop(); err != nil {
		s.log.Error("RSVP speaker", "router", r.id.String(), "error", err)
	}
	delete(s.running, r.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, r.id)
	s.forgetLocked(r.id)
	for k, o := range s.entries {
		if o.router == r {
			o.router = nil
			s.entries[k] = o
		}
	}
}
