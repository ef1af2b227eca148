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
	instance uint32 // 0: not heard
	heard    time.Duration
	next     time.Duration // when the next request is due
}

// lostAfter is how many intervals without a Hello mean that a neighbour is lost, in halves (RFC 3209: 3.5).
const lostAfter = 7

// receiveHello answers a request, and finds out whether the neighbour has restarted.
func (r *Router) receiveHello(in *link, from netip.Addr, m message.Message) {
	h, ok := message.Of[message.HelloObject](m)
	switch {
	case !ok:
		r.Counters.Malformed++
		return
	case !in.Prefix.Contains(from) || r.own(from):
		r.Counters.Foreign++
		return
	}
	p := place{in.Index, from}
	n := r.neighbours[p]
	if n == nil { // no LSP goes there, or none did at the last tick: nothing to remember
		r.answerHello(in, from, h)
		return
	}
	restarted := n.instance != 0 && n.instance != h.Source
	n.instance, n.heard = h.Source, r.now
	r.answerHello(in, from, h)
	if restarted {
		r.event(Restarted, Key{}, message.ErrorSpec{Node: from}, nil)
		r.resend(p)
	}
}

func (r *Router) answerHello(in *link, from netip.Addr, h message.HelloObject) {
	if !h.Ack && r.config.Instance != 0 {
		r.sendHello(in, from, message.HelloObject{Ack: true, Source: r.config.Instance, Destination: h.Source})
	}
}

func (r *Router) sendHello(l *link, to netip.Addr, h message.HelloObject) {
	r.send(l, to, l.Prefix.Addr(), to, message.Message{Type: message.Hello, TTL: 1, Objects: []message.Object{h}})
}

// resend tells a neighbour that has restarted all that it is to know, without waiting for refreshes.
func (r *Router) resend(p place) {
	var back []*lsp
	for _, s := range r.sorted() {
		if s.out != nil && s.out.Index == p.index && s.next == p.addr {
			r.sendPath(s)
		}
		if s.resv != nil && s.in != nil && s.in.Index == p.index && s.path.hop.Addr == p.addr {
			back = append(back, s)
		}
	}
	r.sendResvs(back)
	for _, s := range back { // and once more when its Path state is there: a Resv without it has no effect
		s.resv.refresh = r.now + r.config.Hello
	}
}

// adjacent is the neighbours that LSPs come from and go to, in a fixed order.
func (r *Router) adjacent() []place {
	set := make(map[place]struct{})
	for _, s := range r.lsps {
		if s.out != nil {
			set[place{s.out.Index, s.next}] = struct{}{}
		}
		if s.in != nil {
			set[place{s.in.Index, s.path.hop.Addr}] = struct{}{}
		}
	}
	return sortedPlaces(set)
}

func sortedPlaces[V any](set map[place]V) []place {
	return slices.SortedFunc(maps.Keys(set), func(a, b place) int {
		return cmp.Or(a.index-b.index, a.addr.Compare(b.addr))
	})
}

// tickHellos asks neighbours, and gives up those that are silent.
func (r *Router) tickHellos() {
	if r.config.Hello == 0 {
		return
	}
	adjacent := r.adjacent()
	maps.DeleteFunc(r.neighbours, func(p place, _ *neighbour) bool { return !slices.Contains(adjacent, p) })
	for _, p := range adjacent {
		n := r.neighbours[p]
		if n == nil {
			n = &neighbour{}
			r.neighbours[p] = n
		}
		if n.instance != 0 && n.heard+lostAfter*r.config.Hello/2 <= r.now {
			n.instance = 0
			r.event(Lost, Key{}, message.ErrorSpec{Node: p.addr}, nil)
			r.abandon(p)
		}
		if n.next <= r.now {
			n.next = r.now + r.config.Hello
			r.sendHello(r.interfaces[p.index], p.addr,
				message.HelloObject{Source: r.config.Instance, Destination: n.instance})
		}
	}
}

// abandon takes back the reservations of LSPs that go on at a neighbour which is lost. Their path state stays, so that
// they come back with the neighbour.
func (r *Router) abandon(p place) {
	for _, s := range r.sorted() {
		if s.out == nil || s.out.Index != p.index || s.next != p.addr || s.resv == nil {
			continue
		}
		e := problem(message.NoRoute)
		if s.in == nil {
			e.Node = r.config.ID
			r.event(Failed, s.key, e, nil)
		} else {
			r.pathErr(s.in, s.path.hop.Addr, s.path, e)
			r.resvTear(s)
		}
		r.unreserve(s)
	}
}
