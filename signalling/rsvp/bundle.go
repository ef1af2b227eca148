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
	more  [][]byte // encoded, behind that one
	size  int
}

// seal encodes what is to be sent: in Bundles to neighbours that take them, else one by one. What is signed is not
// bundled: Wireshark (4.0) takes a Bundle with an INTEGRITY object for malformed.
func (r *Router) seal(all []Send) []Send {
	var few [4]bundle // to so many neighbours at a time, mostly
	bundles := few[:0]
	for i := range all {
		s := &all[i]
		r.encodeSend(s)
		if s.link == nil || s.Message == nil || !r.config.Reduce || !s.link.reduces || len(s.link.Keys) > 0 {
			continue
		}
		at := len(bundles) - 1
		for at >= 0 && (all[bundles[at].first].link != s.link || all[bundles[at].first].Next != s.Next) {
			at--
		}
		if at < 0 || bundles[at].size+len(s.Message) > s.link.bundleMax() {
			bundles = append(bundles, bundle{first: i, size: len(s.Message)})
			continue
		}
		in := &bundles[at]
		in.more, in.size, s.Message = append(in.more, s.Message), in.size+len(s.Message), nil
	}
	for _, in := range bundles {
		s := &all[in.first]
		if len(in.more) == 0 {
			continue
		}
		s.message = message.Message{Type: message.Bundle, Flags: message.RefreshReduction, TTL: 1,
			Encoded: slices.Insert(in.more, 0, s.Message)}
		if s.link.GTSM {
			s.message.TTL = ttl
		}
		s.Source, s.Dest, s.RouterAlert = s.link.Prefix.Addr(), s.Next, false
		r.encodeSend(s)
	}
	all = slices.DeleteFunc(all, func(s Send) bool { return s.Message == nil }) // it is in a bundle, or malformed
	for i := range all {
		all[i].link, all[i].message, all[i].of = nil, message.Message{}, nil
	}
	return all
}

// encodeSend encodes a message to a neighbour. One that grew too long, by what it was given to pass on, is counted.
func (r *Router) encodeSend(s *Send) {
	if s.link == nil {
		return
	}
	b, err := r.encode(s.link.Keys, s.message)
	if err != nil {
		r.Counters.Malformed++
	}
	s.Message = b
}
