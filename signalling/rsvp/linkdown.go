package rsvp

import (
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// SetLink tells that an interface is down or up. LSPs over one that is down are torn down at once towards the ends that
// can still be reached: upstream by PathErr and ResvTear, downstream by PathTear. An LSP that begins here stays, and is
// tried by another way if its route allows one, and by this one when the interface is up.
func (r *Router) SetLink(now time.Duration, index int, up bool) {
	r.advance(now)
	l := r.interfaces[index]
	if l == nil || l.Down != up {
		return
	}
	l.Down, l.reduces = !up, false // behind it may be another router when it comes back
	r.mark(l)
	if up {
		for _, s := range r.sorted(func(s *lsp) bool { return s.in == nil && s.out == l }) {
			r.sendPath(s)
		}
		return
	}
	for _, p := range sortedPlaces(r.neighbours) {
		if n := r.neighbours[p]; p.index == index { // not lost: that it is silent tells nothing
			n.instance, n.before, n.until = 0, 0, 0
			r.set(&n.timer, n.due())
		}
	}
	for _, s := range r.sorted(func(s *lsp) bool { return s.in == l || s.out == l }) {
		if s.known { // else it has gone with another one, its bypass
			r.sever(s, l)
		}
	}
	r.releaseLink(index)
}

// sever tears an LSP down whose link is down. The error names the link by this router's address on it, so that the
// ingress can avoid it (RFC 3209, section 7.3: no route available toward destination).
func (r *Router) sever(s *lsp, l *link) {
	switch {
	case s.out == l && s.repair == nil && !r.goRound(s, false):
		r.lose(s, l)
	case s.in != l:
	case s.path.protected():
		r.outlive(s)
	default:
		r.remove(s, false, true)
	}
}

// lose gives up what an LSP has behind a link.
func (r *Router) lose(s *lsp, l *link) {
	e := problem(message.NoRoute)
	e.Node = l.Prefix.Addr()
	if s.in == nil {
		r.event(Failed, s.key, e, nil)
		r.unreserve(s)
		r.reroute(s)
		return
	}
	e.Flags = message.PathStateRemoved
	r.pathErrs(s, e)
	r.remove(s, true, true)
}

// reroute finds another way for an LSP that begins here, and has no reservation.
func (r *Router) reroute(s *lsp) message.ErrorSpec {
	fresh := lsp{key: s.key, path: s.path}
	e := r.routeLSP(&fresh)
	if e.Code == 0 {
		e = r.early(&fresh)
	}
	if e.Code != 0 || fresh.out == nil {
		s.refresh = r.now + r.jittered()
		r.schedule(s)
		return e
	}
	delete(r.sentIDs, s.sent.id)
	r.meet(s, -1)
	s.out, s.next, s.steps, s.sent = fresh.out, fresh.next, fresh.steps, sent{}
	r.meet(s, 1)
	r.sendPath(s)
	return e
}
