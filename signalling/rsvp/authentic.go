package rsvp

import (
	"errors"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// windowBits is how many messages later than another one a message may come (RFC 2747, section 3).
const windowBits = 64

// window finds replays: it knows the highest sequence number, and which of those just below were seen.
type window struct {
	highest uint64
	seen    uint64 // bit n: highest-n
	begun   bool
}

// fresh tells whether a number was not seen before, and notes it. Numbers that are too old count as seen.
func (w *window) fresh(n uint64) bool {
	switch {
	case !w.begun:
		w.highest, w.seen, w.begun = n, 1, true
	case n > w.highest:
		w.seen = w.seen<<min(n-w.highest, windowBits) | 1
		w.highest = n
	case w.highest-n >= windowBits:
		return false
	default:
		bit := uint64(1) << (w.highest - n)
		if w.seen&bit != 0 {
			return false
		}
		w.seen |= bit
	}
	return true
}

// errUnauthentic is the error of a message that is forged or was replayed; the counters say which.
var errUnauthentic = errors.New("not authentic")

// decode reads a message, which has to be authentic where the interface has keys.
func (r *Router) decode(in *link, b []byte) (message.Message, error) {
	if len(in.Keys) == 0 {
		return message.Decode(b)
	}
	m, err := message.Verify(b, in.Keys...)
	i, ok := message.Of[message.Integrity](m)
	if !ok {
		r.Counters.Forged++
		return message.Message{}, errUnauthentic
	}
	w := in.windows[i.KeyID]
	if w == nil {
		w = &window{}
		in.windows[i.KeyID] = w
	}
	if !w.fresh(i.Sequence) {
		r.Counters.Replayed++
		return message.Message{}, errUnauthentic
	}
	return m, err
}

// encode signs a message by the interface's first key.
func (r *Router) encode(l *link, m message.Message) ([]byte, error) {
	if len(l.Keys) == 0 {
		return m.Encode()
	}
	r.sequence++
	return m.Sign(l.Keys[0], r.sequence, 0)
}
