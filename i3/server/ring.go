package server

import (
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/wire"
)

// transport sends the ring's messages as packets.
type transport struct{ s *Server }

func (t transport) Send(to netip.AddrPort, m chord.Message) {
	t.s.out.Send(to, wire.Ring(m, t.s.config.RingKey))
}

// ringMessage hands a message to the ring. Whoever is no server of the ring may ask, but not tell anything.
func (s *Server) ringMessage(now time.Time, from netip.AddrPort, p wire.Packet) {
	m, member, err := wire.ParseRing(p, s.config.RingKey)
	if err != nil {
		s.drop(Malformed)
		return
	}
	if !member {
		asks := m.Kind == chord.Find && !m.Recursive || m.Kind == chord.Query || m.Kind == chord.Ping
		if !asks {
			s.drop(NotFromRing)
			return
		}
		m.From, m.Notify = chord.Peer{}, false
	}
	s.ring.Handle(now, from, m)
	s.follow(now)
}
