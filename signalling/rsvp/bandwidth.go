package rsvp

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

const priorities = 8

// link is an interface and what LSPs hold of it.
type link struct {
	Interface
	held map[message.Session][]holder
	sums [priorities]uint64 // of what is held, by holding priority
	// victims has those that hold more than nothing, in the order of pre-emption.
	victims victims
	// windows are those of the keys by which neighbours sign.
	windows map[uint64]*window
	reduces bool // the neighbour takes MESSAGE_ID
	changed bool // what is unreserved may be something else than told
	told    *Bandwidth
}

// Bandwidth is what an interface has left, as te.Thresholds.Flood and routing protocols take it.
type Bandwidth struct {
	Interface  int
	Reservable uint64             // bytes a second
	Unreserved [priorities]uint64 // for LSPs of each set-up priority, see Router.Unreserved
}

// hold is what one LSP holds.
type hold struct {
	bandwidth uint64
	holding   uint8
	shared    bool // with the other shared ones of its session
}

// holder is an LSP of a session, and what it holds. A session has one or two.
type holder struct {
	sender netip.Addr
	lsp    uint16
	hold
}

func (k Key) holds(h hold) holder { return holder{k.Sender, k.LSP, h} }

func (h holder) is(k Key) bool { return h.lsp == k.LSP && h.sender == k.Sender }

func newLink(i Interface) *link {
	return &link{Interface: i, held: make(map[message.Session][]holder), windows: make(map[uint64]*window)}
}

// sum is what LSPs of one session hold together: shared ones the largest, at the best of their priorities.
func sum(holders ...holder) (sums [priorities]uint64) {
	var most uint64
	best, any := uint8(priorities-1), false
	for _, h := range holders {
		if !h.shared {
			sums[h.holding] += h.bandwidth
			continue
		}
		most, best, any = max(most, h.bandwidth), min(best, h.holding), true
	}
	if any {
		sums[best] += most
	}
	return sums
}

// set changes what an LSP holds; nil: nothing.
func (l *link) set(k Key, h *hold) {
	holders := l.held[k.Session]
	before := sum(holders...)
	at := slices.IndexFunc(holders, func(o holder) bool { return o.is(k) })
	switch {
	case h == nil && at >= 0:
		holders = slices.Delete(holders, at, at+1)
	case h == nil:
	case at >= 0:
		holders[at].hold = *h
	default:
		holders = append(holders, k.holds(*h))
	}
	if len(holders) == 0 {
		delete(l.held, k.Session)
	} else {
		l.held[k.Session] = holders
	}
	after := sum(holders...)
	for p := range l.sums {
		l.sums[p] += after[p] - before[p]
	}
}

// unreserved is what an LSP with a set-up priority could have, before it pre-empts those that it may pre-empt.
func (l *link) unreserved(setup uint8) uint64 { return l.left(l.sums, setup) }

// left is what LSPs that hold so much leave to one with a set-up priority.
func (l *link) left(sums [priorities]uint64, setup uint8) uint64 {
	var taken uint64
	for p := range min(int(setup)+1, priorities) {
		taken += sums[p]
	}
	return l.Bandwidth - min(taken, l.Bandwidth)
}

// admits tells whether an LSP fits, if those that it may pre-empt make room.
func (l *link) admits(k Key, h hold, setup uint8) bool {
	all := l.held[k.Session]
	others := make([]holder, 0, 4) // on the stack, nearly always
	for _, o := range all {
		if !o.is(k) {
			others = append(others, o)
		}
	}
	now, before, after := sum(all...), sum(others...), sum(append(others, k.holds(h))...)
	// What the session as a whole takes more because of this LSP counts at the LSP's set-up priority.
	var more, less uint64
	sums := l.sums
	for p := range after {
		more += after[p]
		less += before[p]
		sums[p] -= now[p] - before[p]
	}
	return more-min(less, more) <= l.left(sums, setup)
}

// excess is by how much LSPs hold more than there is.
func (l *link) excess() uint64 {
	var total uint64
	for _, s := range l.sums {
		total += s
	}
	return total - min(total, l.Bandwidth)
}

// mark has the next Take look at what an interface has left.
func (r *Router) mark(l *link) {
	if !l.changed {
		l.changed = true
		r.changed = append(r.changed, l)
	}
}

// bandwidth is what interfaces have left, of those of which it is not what was told.
func (r *Router) bandwidth() (all []Bandwidth) {
	for _, l := range r.changed {
		l.changed = false
		now := Bandwidth{l.Index, l.Bandwidth, r.Unreserved(l.Index)}
		if l.told == nil || *l.told != now {
			l.told = &now
			all = append(all, now)
		}
	}
	r.changed = r.changed[:0]
	return all
}
