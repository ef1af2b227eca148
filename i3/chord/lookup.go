package chord

import (
	"errors"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
)

// Mode is how a lookup goes from server to server.
type Mode uint8

// The modes.
const (
	Iterative Mode = iota // the one who asks sends each request itself
	Recursive             // each server passes the request on, and the last one answers
)

// ErrLookup says that a lookup came to no end: servers on its way do not answer, or contradict each other.
var ErrLookup = errors.New("the ring gave no answer")

const (
	lookupHops  = 2 * ident.Exact // more than any path in a ring that is right
	lookupTries = 4
)

// lookup is one search for the server that is responsible for a key.
type lookup struct {
	key   ident.Key
	mode  Mode
	joins bool // it is for the first server after the node, and begins at one that need not be in the node's ring
	tries int
	hops  int
	done  func(now time.Time, found Peer, err error)
}

// Lookup finds the server that is responsible for a key; done is called once, perhaps before Lookup returns.
func (n *Node) Lookup(now time.Time, k ident.Key, mode Mode, done func(now time.Time, found Peer, err error)) {
	n.try(now, &lookup{key: k, mode: mode, done: done})
}

// try begins at the node itself.
func (n *Node) try(now time.Time, l *lookup) {
	if l.tries == lookupTries || n.left {
		l.done(now, Peer{}, ErrLookup)
		return
	}
	l.tries++
	l.hops = 0
	found, done, ok := n.find(l.key)
	switch {
	case !ok:
		l.done(now, Peer{}, ErrLookup)
	case done:
		l.done(now, found, nil)
	case l.mode == Recursive && l.tries < lookupTries: // the last try shows which server is silent
		m := Message{Kind: Find, Key: l.key, Peers: make([]Peer, 1)}
		m.Recursive, m.Origin, m.Hops = true, n.self.Addr, ident.Exact
		n.ask(now, found.Addr, m, func(now time.Time, answer *Message) {
			if answer == nil {
				n.try(now, l)
				return
			}
			l.done(now, answer.Peers[0], nil)
		})
	default:
		n.step(now, l, found)
	}
}

// step asks the next server of an iterative lookup.
func (n *Node) step(now time.Time, l *lookup, p Peer) {
	l.hops++
	m := Message{Kind: Find, Key: l.key, Peers: make([]Peer, 1)}
	n.ask(now, p.Addr, m, func(now time.Time, answer *Message) {
		if answer == nil {
			n.try(now, l)
			return
		}
		next := answer.Peers[0]
		switch {
		case answer.Done:
			l.done(now, next, nil)
		case l.joins && next.Addr == n.self.Addr:
			// The ring knows this node from before it was started anew. Any server of the ring will do:
			// offer goes back from it to the right one.
			l.done(now, answer.From, nil)
		case l.hops == lookupHops || next.Addr == n.self.Addr || !next.Key.Between(answer.From.Key, l.key):
			// This comes no nearer to the key: servers contradict each other until the ring is right again.
			l.done(now, Peer{}, ErrLookup)
		default:
			n.step(now, l, next)
		}
	})
}

// find gives the server that is responsible for a key (done), or one that knows more; ok is false if the node cannot
// tell, because it has not joined yet.
func (n *Node) find(k ident.Key) (p Peer, done, ok bool) {
	if n.Owns(k) {
		return n.self, true, true
	}
	p, ok = n.closest(k)
	return p, ok && k.In(n.self.Key, p.Key) && p == n.successors[0], ok
}

// handleFind answers a Find, or passes it on.
func (n *Node) handleFind(from netip.AddrPort, m *Message) {
	p, done, ok := n.find(m.Key)
	if !ok || len(m.Peers) == 0 {
		return
	}
	to := from
	if m.Recursive {
		to = m.Origin
		if !done {
			if m.Hops == 0 {
				return
			}
			on := *m
			on.From = n.self
			on.Hops--
			n.transport.Send(p.Addr, on)
			return
		}
	}
	answer := Message{Kind: Found, Nonce: m.Nonce, From: n.self, Key: m.Key, Done: done, Peers: []Peer{p}}
	n.transport.Send(to, answer)
}
