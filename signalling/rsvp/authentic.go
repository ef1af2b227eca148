package rsvp

import (
	"errors"
	"net/netip"

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

// signer is a router that is no neighbour, and its key.
type signer struct {
	router netip.Addr
	key    uint64
}

// decode reads a message, which has to be authentic where the interface has keys. It tells whether the message is from
// beyond the link, by a bypass: then it is by the router's keys.
func (r *Router) decode(in *link, b []byte) (m message.Message, beyond bool, err error) {
	m, err = message.Decode(b)
	peer, beyond := r.beyond(m)
	keys := in.Keys
	if beyond {
		keys = r.config.Keys
	}
	if len(in.Keys) == 0 && len(keys) == 0 {
		return m, beyond, err
	}
	m, err = message.Verify(b, keys...)
	i, ok := message.Of[message.Integrity](m)
	if !ok {
		r.Counters.Forged++
		return message.Message{}, false, errUnauthentic
	}
	if !r.window(in, signer{peer, i.KeyID}).fresh(i.Sequence) {
		r.Counters.Replayed++
		return message.Message{}, false, errUnauthentic
	}
	return m, beyond, err
}

// window is that of a key of neighbours, or of a router beyond the link.
func (r *Router) window(in *link, by signer) *window {
	w := in.windows[by.key]
	if by.router.IsValid() {
		w = r.windows[by]
	}
	if w != nil {
		return w
	}
	w = &window{}
	if by.router.IsValid() {
		r.windows[by] = w
	} else {
		in.windows[by.key] = w
	}
	return w
}

// encode signs a message by the first key.
func (r *Router) encode(keys []message.Key, m message.Message) ([]byte, error) {
	if len(keys) == 0 {
		return m.Encode()
	}
	r.sequence++
	return m.Sign(keys[0], r.sequence, 0)
}
