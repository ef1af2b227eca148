package rsvp

import (
	"container/heap"
	"math"
	"time"
)

// timer has an LSP or a neighbour looked at when the first thing is due that it waits for. It is in the heap exactly
// while its owner is known. One without an owner is that of recovery, see Adopt.
type timer struct {
	at        time.Duration // the router's time; never: nothing is due
	place     int           // in the heap, from 1; 0: not there
	number    uint64        // in the order in which timers are made: equal times come in a fixed order
	lsp       *lsp
	neighbour *neighbour
}

// wait is a timer in the heap, with a copy of what it is ordered by: comparing looks at nothing else.
type wait struct {
	at     time.Duration
	number uint64
	timer  *timer
}

const never = time.Duration(math.MaxInt64)

// timers is a heap (container/heap); the first one is due first.
type timers []wait

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].number < t[j].number
}
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer.place, t[j].timer.place = i+1, j+1
}
func (t *timers) Push(x any) {
	added := x.(*timer)
	*t = append(*t, wait{added.at, added.number, added})
	added.place = len(*t)
}
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last].timer
	(*t)[last], *t = wait{}, (*t)[:last]
	x.place = 0
	return x
}

// Next is when Tick has something to do, in the caller's time; false: nothing is waited for. Any input may change it.
// A caller whose clock has jumped back calls Tick: the time of Next is one of the old clock.
func (r *Router) Next() (at time.Duration, ok bool) {
	if len(r.timers) == 0 || r.timers[0].at == never {
		return 0, false
	}
	return r.timers[0].at - r.shift, true
}

// Tick lets state expire and sends what is due. It looks at nothing else.
func (r *Router) Tick(now time.Duration) {
	r.advance(now)
	var due []*lsp
	for len(r.timers) > 0 && r.timers[0].at <= r.now {
		t := heap.Pop(&r.timers).(*timer)
		switch {
		case t.neighbour != nil:
			r.tickNeighbour(t.neighbour)
		case t.lsp != nil:
			due = append(due, t.lsp)
		default:
			r.recovered()
		}
	}
	var resvs []*lsp
	all := summaries{}
	for _, s := range due {
		if r.tickLSP(s, all) {
			resvs = append(resvs, s)
		}
	}
	r.refreshResvs(resvs, all)
	r.sendSummaries(all)
	for _, s := range due {
		r.schedule(s)
	}
}

// tickLSP does what is due of an LSP, but the refresh of its reservation: true if that is due. LSPs that share a
// reservation are refreshed together.
func (r *Router) tickLSP(s *lsp, all summaries) bool {
	if !s.known {
		return false
	}
	if s.in != nil && !s.lapsed && s.expires <= r.now {
		r.lapse(s, true)
	}
	if !s.known || !r.tickBackups(s) {
		return false
	}
	if s.out != nil && s.resv != nil && s.resv.expires <= r.now {
		r.withdraw(s)
	}
	if !s.known {
		return false
	}
	if s.out != nil {
		r.tickPath(s, all)
	}
	if s.in == nil || s.resv == nil || s.lapsed {
		return false
	}
	r.tickResv(s)
	return s.resv.refresh <= r.now
}

func (r *Router) tickPath(s *lsp, all summaries) {
	switch tries := s.sent.tries; {
	case s.refresh <= r.now && s.out.Down && s.in == nil && s.repair == nil:
		if e := r.reroute(s); e.Code != 0 {
			e.Node = r.config.ID
			r.event(Failed, s.key, e, nil)
		}
	case s.refresh <= r.now:
		r.refreshPath(s, all)
	case s.sent.overdue(r.now):
		r.sendPath(s)
		s.sent.again(r.now, tries)
	}
}

func (r *Router) tickResv(s *lsp) {
	if tries := s.resv.sent.tries; s.resv.sent.overdue(r.now) {
		r.sendResvs([]*lsp{s})
		s.resv.sent.again(r.now, tries)
	}
}

// schedule sets the timer of an LSP after anything that is waited for has changed.
func (r *Router) schedule(s *lsp) {
	if s.known {
		r.set(&s.timer, s.due())
	}
}

// due is when the first thing that an LSP waits for comes: the conditions are those of tickLSP.
func (s *lsp) due() time.Duration {
	at := s.backupDue()
	if s.in != nil && !s.lapsed {
		at = min(at, s.expires)
	}
	if s.out != nil {
		at = min(at, s.refresh, s.sent.due())
	}
	if s.resv == nil {
		return at
	}
	if s.out != nil {
		at = min(at, s.resv.expires)
	}
	if s.in != nil && !s.lapsed {
		at = min(at, s.resv.refresh, s.resv.sent.due())
	}
	return at
}

func (r *Router) set(t *timer, at time.Duration) {
	switch {
	case t.place == 0:
		if t.number == 0 {
			r.nextTimer++
			t.number = r.nextTimer
		}
		t.at = at
		heap.Push(&r.timers, t)
	case t.at != at:
		t.at, r.timers[t.place-1].at = at, at
		heap.Fix(&r.timers, t.place-1)
	}
}

func (r *Router) stop(t *timer) {
	if t.place > 0 {
		heap.Remove(&r.timers, t.place-1)
	}
}
