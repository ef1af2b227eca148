package rsvp

import "github.com/pergola-net/pergola/signalling/rsvp/message"

// adjacent tells whether messages of a type are for the next router itself, so that no other one forwards them. Path,
// PathTear and ResvConf are for the egress.
func adjacent(t message.Type) bool {
	return t != message.Path && t != message.PathTear && t != message.ResvConf
}

// distant tells whether a message comes from beyond the link. Each router names in it the TTL that it sends with (RFC
// 2205, section 3.1.1), so one that comes with less was forwarded, and that is not done to a message for a neighbour.
// A forger can name any TTL; that of a packet from beyond the link is less than 255 in any case (RFC 5082), but no RFC
// has RSVP send by 255: Hellos are to go by 1 (RFC 3209, section 5). So 255 is asked for where the link is said to have
// it.
func (l *link) distant(m message.Message, received uint8) bool {
	switch {
	case !adjacent(m.Type):
		return false
	case l.GTSM:
		return received != ttl
	}
	return received < m.TTL
}
