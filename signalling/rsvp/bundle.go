package rsvp

import (
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// bundleMax is how long the messages of a Bundle may be, in bytes, where the link takes that: a raw socket does not
// fragment.
const bundleMax = 1400

func (l *link) bundleMax() int {
	const headers = 20 + 8 // of IPv4, and of the Bundle
	if l.MTU == 0 {
		return bundleMax
	}
	return min(bundleMax, l.MTU-headers)
}

// bundle is messages to one neighbour that go together (RFC 2961, section 3).
type bundle struct {
	first int      // its place among what is sent
	parts [][]byte // encoded
	size  int
}

// seal encodes what is to be sent: in Bundles to neighbours that take them, else one by one. What is signed is not
// bundled: Wireshark (4.0) takes a Bundle with an INTEGRITY object for malformed.
func (r *Router) seal(all []Send) []Send {
	var bundles []*bundle
	last := map[place]*bundle{}
	for i := range all {
		s := &all[i]
		if s.link == nil || !r.config.Reduce || !s.link.reduces || len(s.link.Keys) > 0 {
			r.encodeSend(s)
			continue
		}
		b, err := s.message.Encode()
		if err != nil {
			r.Counters.Malformed++
			s.link = nil
			continue
		}
		to := place{s.link.Index, s.Next}
		in := last[to]
		if in == nil || in.size+len(b) > s.link.bundleMax() {
			in = &bundle{first: i}
			bundles = append(bundles, in)
			last[to] = in
		}
		in.parts, in.size = append(in.parts, b), in.size+len(b)
	}
	for _, in := range bundles {
		s := &all[in.first]
		if len(in.parts) > 1 {
			s.message = message.Message{Type: message.Bundle, Flags: message.RefreshReduction, TTL: 1,
				Encoded: in.parts}
			if s.link.GTSM {
				s.message.TTL = ttl
			}
			s.Source, s.Dest, s.RouterAlert = s.link.Prefix.Addr(), s.Next, false
		}
		r.encodeSend(s)
	}
	return slices.DeleteFunc(all, func(s Send) bool { return s.Message == nil }) // it is in a bundle, or malformed
}

// encodeSend encodes a message to a neighbour. One that grew too long, by what it was given to pass on, is counted.
func (r *Router) encodeSend(s *Send) {
	if s.link == nil {
		return
	}
	b, err := r.encode(s.link.Keys, s.message)
	if err != nil {
		r.Counters.Malformed++
		return
	}
	s.Message, s.message, s.link, s.of = b, message.Message{}, nil, nil
}
