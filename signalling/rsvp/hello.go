package rsvp

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// place is a neighbour: an address at an interface.
type place struct {
	index int
	addr  netip.Addr
}

// neighbour is what Hellos say of another router (RFC 3209, section 5).
type neighbour struct {
	place    place
	lsps     int           // that come from it or go to it
	instance uint32        // 0: not heard
	lost     time.Duration // when it is, if nothing more is heard
	next     time.Duration // when the next request is due
	timer    timer
	// Of its restarts, see restarting.go:
	cap      message.RestartCap // of its last Hello; zero: it had none
	before   uint32             // instance before it became silent, while it is awaited; else 0
	until    time.Duration      // when it is given up, or its recovery ends
	recovery time.Duration      // its whole time of recovery
}

// lostAfter is how many intervals without a Hello mean that a neighbour is lost, in halves (RFC 3209: 3.5).
const lostAfter = 7

// receiveHello answers a request, and finds out whether the neighbour has restarted.
func (r *Router) receiveHello(in *link, packet Packet, m message.Message) {
	from := packet.Source
	h, ok := message.Of[message.HelloObject](m)
	switch {
	case !ok:
		r.Counters.Malformed++
		return
	case packet.Dest == r.config.ID && !in.Prefix.Contains(from) && !r.own(from):
		r.answerIdentifier(in, from, h)
		return
	case !in.Prefix.Contains(from) || r.own(from):
		r.Counters.Foreign++
		return
	}
	p := place{in.Index, from}
	n := r.neighbours[p]
	if n == nil { // no LSP comes from there or goes there: nothing to remember
		r.answerHello(in, from, h)
		return
	}
	r.answerHello(in, from, h)
	c, _ := message.Of[message.RestartCap](m)
	r.returned(n, h.Source, c)
	n.instance, n.lost = h.Source, r.now+lostAfter*r.config.Hello/2
	r.set(&n.timer, n.due())
}

func (r *Router) answerHello(in *link, from netip.Addr, h message.HelloObject) {
	if !h.Ack && r.config.Instance != 0 {
		r.sendHello(in, from, message.HelloObject{Ack: true, Source: r.config.Instance, Destination: h.Source})
	}
}

// answerIdentifier answers a request from one router's identifier to another one's (RFC 4558), which comes once for all
// links between them. Routers of this make ask each neighbour at its interface, and learn nothing from it.
func (r *Router) answerIdentifier(in *link, to netip.Addr, h message.HelloObject) {
	if h.Ack || r.config.Instance == 0 {
		return
	}
	answer := message.HelloObject{Ack: true, Source: r.config.Instance, Destination: h.Source}
	r.send(in, to, r.config.ID, to, message.Message{Type: message.Hello, TTL: 1,
		Objects: append([]message.Object{answer}, r.restartCap()...)})
}

func (r *Router) sendHello(l *link, to netip.Addr, h message.HelloObject) {
	r.send(l, to, l.Prefix.Addr(), to, message.Message{Type: message.Hello, TTL: 1,
		Objects: append([]message.Object{h}, r.restartCap()...)})
}

// resend tells a neighbour that has restarted all that it is to know, without waiting for refreshes.
func (r *Router) resend(n *neighbour) {
	p, recovers := n.place, n.recovers(r.now)
	var back []*lsp
	for _, s := range r.sorted(func(s *lsp) bool { return s.goesTo(p) || s.comesFrom(p) }) {
		if s.goesTo(p) {
			s.unsure = recovers && s.resv != nil
			r.sendPath(s)
		}
		if s.comesFrom(p) && s.resv != nil {
			back = append(back, s)
		}
	}
	if !recovers { // else each is sent when the Path has come
		r.sendResvs(back)
	}
	for _, s := range back { // and once more when its Path state is there: a Resv without it has no effect
		s.resv.refresh = r.now + r.config.Hello
		r.schedule(s)
	}
}

// meet counts the LSPs of the neighbours that an LSP comes from and goes to: more of them, or less. One without LSPs is
// forgotten when its next Hello would be due.
func (r *Router) meet(s *lsp, more int) {
	if r.config.Hello == 0 {
		return
	}
	if s.out != nil {
		r.meetAt(place{s.out.Index, s.next}, more)
	}
	if s.in != nil {
		r.meetAt(place{s.in.Index, s.path.hop.Addr}, more)
	}
}

func (r *Router) meetAt(p place, more int) {
	n := r.neighbours[p]
	if n == nil {
		n = &neighbour{place: p, next: r.now}
		n.timer.neighbour = n
		r.neighbours[p] = n
		r.set(&n.timer, n.due())
	}
	n.lsps += more
}

// due is when a neighbour has to be asked, or is lost.
func (n *neighbour) due() time.Duration {
	switch {
	case n.instance != 0:
		return min(n.next, n.lost)
	case n.awaited():
		return min(n.next, n.until)
	}
	return n.next
}

// tickNeighbour asks a neighbour, and gives it up if it is silent.
func (r *Router) tickNeighbour(n *neighbour) {
	if n.lsps == 0 {
		delete(r.neighbours, n.place)
		return
	}
	switch {
	case n.instance != 0 && n.lost <= r.now:
		r.silence(n)
	case n.awaited() && n.until <= r.now:
		r.giveUp(n)
	}
	if n.next <= r.now {
		n.next = r.now + r.config.Hello
		r.sendHello(r.interfaces[n.place.index], n.place.addr,
			message.HelloObject{Source: r.config.Instance, Destination: n.instance})
	}
	r.set(&n.timer, n.due())
}

func sortedPlaces[V any](set map[place]V) []place {
	return slices.SortedFunc(maps.Keys(set), func(a, b place) int {
		return cmp.Or(a.index-b.index, a.addr.Compare(b.addr))
	})
}

// abandon takes back the reservations of LSPs that go on at a neighbour which is lost. Their path state stays, so that
// they come back with the neighbour.
func (r *Router) abandon(p place) {
	for _, s := range r.sorted(func(s *lsp) bool { return s.goesTo(p) && s.resv != nil }) {
		if !s.known || s.resv == nil || r.goRound(s, true) {
			continue
		}
		e := problem(message.NoRoute)
		if s.in == nil {
			e.Node = r.config.ID
			r.event(Failed, s.key, e, nil)
		} else {
			r.pathErrs(s, e)
			r.resvTear(s)
		}
		r.unreserve(s)
	}
}

func (s *lsp) goesTo(p place) bool {
	return s.out != nil && s.repair == nil && s.out.Index == p.index && s.next == p.addr
}

func (s *lsp) comesFrom(p place) bool {
	return s.in != nil && s.in.Index == p.index && s.path.hop.Addr == p.addr
}
