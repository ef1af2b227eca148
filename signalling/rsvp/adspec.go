package rsvp

import (
	"cmp"
	"math"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Parameters of an ADSPEC that this router composes with its own (RFC 2215, section 3), and which each are one word.
const (
	paramHops      = 4  // routers of integrated services on the way
	paramBandwidth = 6  // bytes a second, as a float32: of the slowest link
	paramLatency   = 8  // microseconds
	paramMTU       = 10 // bytes: the least
)

// indeterminate is a latency that a router on the way does not know (RFC 2215, section 3.4).
const indeterminate = math.MaxUint32

// firstAdspec is what there is to say before the first link.
var firstAdspec = message.Adspec{Services: []message.AdService{
	{Service: message.General, Parameters: []message.Parameter{
		{Number: paramHops, Words: []uint32{0}},
		{Number: paramBandwidth, Words: []uint32{math.Float32bits(float32(math.Inf(1)))}},
		{Number: paramLatency, Words: []uint32{0}},
		{Number: paramMTU, Words: []uint32{math.MaxUint32}},
	}},
	{Service: message.ControlledLoad},
}}

// adspec is what routers up to this one say of themselves and their links, of which this one's is given (RFC 2210,
// section 3.3): nothing, if the first of them did not begin.
func (s *lsp) adspec(by *link) (a message.Adspec, ok bool) {
	switch {
	case s.in == nil:
		a = firstAdspec
	case s.path.adspec == nil:
		return a, false
	default:
		a = *s.path.adspec
	}
	return compose(a, by), true
}

// compose adds what this router says of the link by which a Path leaves. Of what it does not have, it says that.
func compose(a message.Adspec, l *link) message.Adspec {
	all := make([]message.AdService, len(a.Services))
	for i, s := range a.Services {
		composed := s.Service == message.General || s.Service == message.ControlledLoad
		s.Broken = s.Broken || !composed
		parameters := make([]message.Parameter, len(s.Parameters))
		words := make([]uint32, len(s.Parameters))
		for j, p := range s.Parameters {
			parameters[j] = p
			switch {
			case !composed:
			case len(p.Words) != 1 || !l.composes(p.Number, p.Words[0], &words[j]):
				parameters[j].Invalid = true
			default:
				parameters[j].Words = words[j : j+1 : j+1]
			}
		}
		s.Parameters = parameters
		all[i] = s
	}
	return message.Adspec{Services: all}
}

// composes gives a parameter as it is behind a link; false: the parameter is not known here.
func (l *link) composes(number uint8, before uint32, now *uint32) bool {
	switch number {
	case paramHops:
		*now = max(before, before+1) // or as many as there can be
	case paramBandwidth:
		slowest := float32(l.Bandwidth)
		if b := math.Float32frombits(before); b >= 0 && b < slowest {
			slowest = b
		}
		*now = math.Float32bits(slowest)
	case paramLatency:
		*now = indeterminate
	case paramMTU:
		*now = min(before, uint32(cmp.Or(l.MTU, defaultPacket)))
	default:
		return false
	}
	return true
}
