package server

import (
	"time"

	"github.com/pergola-net/pergola/i3/wire"
)

// maxRedirects is how many copies of one packet a server may redirect to stacks. More than the highest hop limit, so
// only a tree of triggers made for it gets there.
const maxRedirects = 256

// routed passes a packet on towards the server that is responsible for its first identifier, or acts on it here.
func (s *Server) routed(now time.Time, p wire.Packet) {
	if p.HopLimit() < 2 {
		s.drop(HopLimit)
		return
	}
	if s.routes.Owns(p.ID(0).Key()) {
		switch p.Type() {
		case wire.Insert:
			s.insert(now, p)
		case wire.Remove:
			s.remove(now, p)
		default:
			redirects := maxRedirects
			s.fire(p, &redirects)
		}
		return
	}
	s.pass(p)
}

// pass sends a packet to the next server.
func (s *Server) pass(p wire.Packet) {
	next, ok := s.routes.Next(p.ID(0).Key())
	if !ok {
		s.drop(NoRoute)
		return
	}
	p.SetHopLimit(p.HopLimit() - 1)
	s.counters.Passed++
	s.out.Send(next.Addr, p)
}

// fire does with data what the triggers say that it matches.
func (s *Server) fire(p wire.Packet, redirects *int) {
	if p.HopLimit() < 2 {
		s.drop(HopLimit)
		return
	}
	if p.Copies() == 0 {
		s.drop(TooManyCopies)
		return
	}
	if !s.routes.Owns(p.ID(0).Key()) {
		s.pass(p)
		return
	}
	triggers := s.table.Match(p.ID(0)).Triggers
	if len(triggers) == 0 {
		s.drop(NoTrigger)
		return
	}
	if len(triggers) > 1 {
		share := p.Copies() / len(triggers)
		if share == 0 {
			s.counters.Dropped[TooManyCopies] += uint64(len(triggers) - p.Copies())
			triggers, share = triggers[:p.Copies()], 1
		}
		p.SetCopies(share)
	}
	p.SetHopLimit(p.HopLimit() - 1)
	for _, t := range triggers {
		if t.Direct() {
			p.SetType(wire.Delivery)
			s.counters.Delivered++
			s.out.Send(t.Receiver, p)
			p.SetType(wire.Data)
			continue
		}
		to, err := p.Redirect(t.Stack)
		if err != nil {
			s.drop(StackTooDeep)
			continue
		}
		if *redirects == 0 {
			s.drop(TooManyCopies)
			continue
		}
		*redirects--
		s.counters.Redirected++
		s.fire(to, redirects)
	}
}
