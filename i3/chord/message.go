package chord

import (
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/i3/ident"
)

// Peer is a server of the ring, as others know it: its point and its address. The zero value is no server.
type Peer struct {
	Key  ident.Key
	Addr netip.AddrPort
}

// IsZero reports whether p is no server.
func (p Peer) IsZero() bool { return p == Peer{} }

func (p Peer) String() string { return fmt.Sprintf("%s at %s", p.Key.ID().Short(), p.Addr) }

// Kind says what a message is.
type Kind uint8

// The messages. Find, Query and Ping are requests, the next one in the list is the answer to each. Leave has no answer.
const (
	Find  Kind = iota // which server is responsible for Key, or which one knows more?
	Found             // Peers[0] is responsible (Done), or knows more
	Query             // which are your predecessor and your successors?
	State             // Peers[0] is the predecessor, the others are the successors, the next one first
	Ping              // are you there?
	Pong
	Leave // the sender leaves; Peers as in State
)

func (k Kind) String() string {
	names := [...]string{"find", "found", "query", "state", "ping", "pong", "leave"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Message is what servers tell each other. A request has at least as many Peers as its answer may have, which are zero:
// so no answer is longer than its request, and servers are of no use to someone who forges the sender of requests to
// flood a victim with answers.
type Message struct {
	Kind      Kind
	Nonce     uint64         // chosen at random by the sender of a request; the answer has the same
	From      Peer           // the sender; zero if it is not a server of the ring
	Notify    bool           // Query: the sender takes the receiver for its successor
	Done      bool           // Found: Peers[0] is responsible
	Recursive bool           // Find: the receiver is to pass it on; the last one answers to Origin
	Hops      uint8          // Find: how often a recursive one may still be passed on
	Key       ident.Key      // Find, Found
	Origin    netip.AddrPort // Find: who asks, if recursive
	Peers     []Peer
}

// MaxPeers is how many Peers a message may have.
const MaxPeers = 17
