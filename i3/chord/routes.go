package chord

import (
	"slices"

	"github.com/pergola-net/pergola/i3/ident"
)

// Own says for which keys a server is responsible.
type Own uint8

// The values of Own.
const (
	OwnNone     Own = iota // it has just begun, or leaves
	OwnInterval            // (From, To]
	OwnAll                 // it is alone
)

// Routes is what a server does with keys, as a table that does not change: a copy for the fast path.
//
// A key that the server is responsible for, by Own, From and To, is its own. Any other key lies in exactly one of Hops.
type Routes struct {
	Own      Own
	From, To ident.Key
	Hops     []Hop // clockwise, from the server on; each begins where the one before ends
}

// Hop says to which server keys in (From, To] go.
type Hop struct {
	From, To ident.Key
	Next     Peer
}

// Owns reports whether the server is responsible for a key.
func (r *Routes) Owns(k ident.Key) bool {
	return r.Own == OwnAll || r.Own == OwnInterval && k.In(r.From, r.To)
}

// Next gives the server to which a key goes that is not the server's own; ok is false where it knows none.
func (r *Routes) Next(k ident.Key) (next Peer, ok bool) {
	for _, h := range r.Hops {
		if k.In(h.From, h.To) {
			return h.Next, true
		}
	}
	return Peer{}, false
}

// Equal reports whether two tables are the same.
func (r *Routes) Equal(other *Routes) bool {
	return r.Own == other.Own && r.From == other.From && r.To == other.To && slices.Equal(r.Hops, other.Hops)
}

// Routes gives the table of what the node does now.
func (n *Node) Routes() Routes {
	var r Routes
	r.Own, r.From, r.To = n.own()
	peers := n.known()
	if len(peers) == 0 {
		return r
	}
	slices.SortFunc(peers, func(a, b Peer) int { return n.distance(a).Compare(n.distance(b)) })
	// The first is the successor: all keys up to its own are its, and it precedes those up to the second one's.
	from := n.self.Key
	for i, p := range peers {
		to := n.self.Key
		if i+1 < len(peers) {
			to = peers[i+1].Key
		}
		r.Hops = append(r.Hops, Hop{From: from, To: to, Next: p})
		from = to
	}
	if n.passes {
		r.Hops = carve(r.Hops, n.self.Key, Hop{From: n.passed, To: n.predecessor.Key, Next: n.predecessor})
	}
	return r
}

// carve gives the hops around the whole ring, from origin to origin, with one more instead of what they say of its
// keys. That one begins and ends between origin and origin.
func carve(hops []Hop, origin ident.Key, one Hop) []Hop {
	// Distances from origin; as the end of a hop, origin is behind all others.
	before := func(a, b ident.Key) bool { return a.From(origin).Compare(b.From(origin)) < 0 }
	beforeEnd := func(a, end ident.Key) bool { return end == origin || before(a, end) }
	var carved []Hop
	for _, h := range hops {
		if before(h.From, one.From) {
			first := h
			if beforeEnd(one.From, h.To) {
				first.To = one.From
			}
			carved = append(carved, first)
		}
		if !before(one.From, h.From) && beforeEnd(one.From, h.To) {
			carved = append(carved, one)
		}
		if beforeEnd(one.To, h.To) {
			last := h
			if before(h.From, one.To) {
				last.From = one.To
			}
			carved = append(carved, last)
		}
	}
	return carved
}
