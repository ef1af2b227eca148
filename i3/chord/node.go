// Package chord keeps the ring of I3's servers (Stoica et al., "Chord: A Scalable Peer-to-peer Lookup Service for
// Internet Applications", SIGCOMM 2001): which server is responsible for a key, and by whom a key is reached.
//
// It does no I/O and knows no clock. A Node is told the time, messages and that time has passed (Handle, Tick), and
// sends by a Transport. So tests run rings of many nodes in memory, in virtual time, and lose messages.
//
// Beyond the paper:
//
//   - A peer enters the tables only after it has answered, so packets do not go to one that has gone.
//   - A node that has lost its predecessor stays responsible for the same keys until it has another one.
//   - A node that joins takes the predecessor that its successor had for its own. Keys that it so takes over are passed
//     to it by its successor, until its predecessor knows it.
//   - From time to time a node asks one of the servers that it was told to join. If rings have formed without each
//     other, because servers started at the same time or the network was parted, they so become one.
package chord

import (
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
)

// Transport sends messages. They may get lost, and may overtake each other.
type Transport interface {
	Send(to netip.AddrPort, m Message)
}

// Config is what a node needs. Durations that are 0 have the defaults below.
type Config struct {
	Self Peer
	Join []netip.AddrPort // servers of the ring; none: this is the first one. Its own address is ignored.

	Successors int           // length of the list: so many neighbours may fail at once; at most MaxPeers-1
	Stabilize  time.Duration // between two looks at the neighbours
	FixFingers time.Duration // between two renewals of all fingers
	Rejoin     time.Duration // between two questions to servers of Join
	Timeout    time.Duration // until a request is repeated
	Tries      int           // a peer that does not answer so many requests is taken for gone
	Mode       Mode          // of lookups for fingers

	Nonce func() uint64 // random numbers that others cannot predict
}

// passing is how many times Stabilize it takes until all who send to a new server know it.
const passing = 5

// Defaults of Config.
const (
	DefaultSuccessors = 8
	DefaultStabilize  = time.Second
	DefaultFixFingers = 5 * time.Second
	DefaultRejoin     = 30 * time.Second
	DefaultTimeout    = 500 * time.Millisecond
	DefaultTries      = 4
)

func (c Config) withDefaults() Config {
	either := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	either(&c.Stabilize, DefaultStabilize)
	either(&c.FixFingers, DefaultFixFingers)
	either(&c.Rejoin, DefaultRejoin)
	either(&c.Timeout, DefaultTimeout)
	if c.Successors == 0 {
		c.Successors = DefaultSuccessors
	}
	if c.Tries == 0 {
		c.Tries = DefaultTries
	}
	return c
}

// Node is one server's part of the ring. It is not safe for concurrent use.
type Node struct {
	config    Config
	self      Peer
	transport Transport

	successors  []Peer // the next one first; empty: none is known
	predecessor Peer   // zero: none is known
	// lower is where the node's own keys begin: the key of the last predecessor, also when that is gone.
	lower   ident.Key
	bounded bool // lower is known
	// passed is where keys begin that were the node's own until the predecessor came: they are its, up to its key.
	// Until passEnds packets with these keys go to it, for those who send them may not know it yet.
	passed   ident.Key
	passes   bool
	passEnds time.Time
	fingers  [ident.Exact]Peer
	left     bool

	calls []*call // the oldest first
	join  int     // which server of Join is asked next

	stabilizeAt, fixAt, rejoinAt time.Time
	stabilizing, fixing          bool
}

// New gives a node that has not joined its ring yet; the first Tick does that.
func New(c Config, t Transport) *Node {
	c = c.withDefaults()
	var join []netip.AddrPort
	for _, a := range c.Join {
		if a != c.Self.Addr {
			join = append(join, a)
		}
	}
	c.Join = join
	return &Node{config: c, self: c.Self, transport: t}
}

// Self gives the node as others know it.
func (n *Node) Self() Peer { return n.self }

// Predecessor gives the server before this one; zero if none is known.
func (n *Node) Predecessor() Peer { return n.predecessor }

// Successors gives the servers after this one, the next one first. It is empty if the node is alone.
func (n *Node) Successors() []Peer { return append([]Peer(nil), n.successors...) }

// Successor gives the server after this one; ok is false if the node is alone.
func (n *Node) Successor() (p Peer, ok bool) {
	if len(n.successors) == 0 {
		return Peer{}, false
	}
	return n.successors[0], true
}

// Finger gives the server that is responsible for the key 2^i after the node's own, as far as the node knows: it may
// be the node itself, or zero.
func (n *Node) Finger(i int) Peer { return n.fingers[i] }

// Alone reports whether the node knows no other server.
func (n *Node) Alone() bool { return len(n.successors) == 0 && n.predecessor.IsZero() }

func (n *Node) own() (own Own, from, to ident.Key) {
	switch {
	case n.left:
		return OwnNone, from, to
	case n.Alone():
		return OwnAll, from, to
	case n.bounded:
		return OwnInterval, n.lower, n.self.Key
	}
	return OwnNone, from, to
}

// Owns reports whether the node is responsible for a key.
func (n *Node) Owns(k ident.Key) bool {
	own, from, to := n.own()
	return own == OwnAll || own == OwnInterval && k.In(from, to)
}

// Next gives the server to which packets with a key go that is not the node's own: the predecessor if it has just taken
// the key over, the successor if it is responsible, else the known server that most closely precedes the key. ok is
// false if the node knows none.
func (n *Node) Next(k ident.Key) (next Peer, ok bool) {
	if n.passes && k.In(n.passed, n.predecessor.Key) && len(n.successors) > 0 {
		return n.predecessor, true
	}
	return n.closest(k)
}

// closest gives the successor if it is responsible for a key, else the known server that most closely precedes it.
func (n *Node) closest(k ident.Key) (p Peer, ok bool) {
	known := n.known()
	if len(known) == 0 {
		return Peer{}, false
	}
	p = known[0]
	if k.In(n.self.Key, p.Key) {
		return p, true
	}
	for _, other := range known[1:] {
		if other.Key.Between(n.self.Key, k) && n.distance(other).Compare(n.distance(p)) > 0 {
			p = other
		}
	}
	return p, true
}

// known gives the servers to which packets may be sent: the successor first, then the fingers. There is one for each
// key.
func (n *Node) known() []Peer {
	if len(n.successors) == 0 {
		return nil
	}
	next := n.successors[0]
	peers := []Peer{next}
	for _, f := range n.fingers {
		if f.IsZero() || f == peers[len(peers)-1] { // fingers that are equal stand side by side
			continue
		}
		// One that lies before the successor is older than this.
		if f.Key.Between(next.Key, n.self.Key) && !has(peers, f) {
			peers = append(peers, f)
		}
	}
	return peers
}

func has(peers []Peer, p Peer) bool {
	for _, other := range peers {
		if other.Key == p.Key {
			return true
		}
	}
	return false
}

// distance is how far a peer is from the node, clockwise.
func (n *Node) distance(p Peer) ident.Key { return p.Key.From(n.self.Key) }

// Tick does what is due at now. The first one begins to join the ring.
func (n *Node) Tick(now time.Time) {
	if n.left {
		return
	}
	n.expireCalls(now)
	if n.passes && !now.Before(n.passEnds) {
		n.passes = false
	}
	if !now.Before(n.stabilizeAt) {
		n.stabilizeAt = now.Add(n.config.Stabilize)
		n.stabilize(now)
		n.checkPredecessor(now)
	}
	if !now.Before(n.fixAt) {
		n.fixAt = now.Add(n.config.FixFingers)
		n.fixFingers(now)
	}
	if !now.Before(n.rejoinAt) {
		n.rejoinAt = now.Add(n.config.Rejoin)
		n.rejoin(now)
	}
}

// Due gives the time at which Tick is to be called next; ok is false if it need not be called any more.
func (n *Node) Due() (at time.Time, ok bool) {
	at = n.stabilizeAt
	for _, t := range []time.Time{n.fixAt, n.rejoinAt} {
		if t.Before(at) {
			at = t
		}
	}
	if n.passes && n.passEnds.Before(at) {
		at = n.passEnds
	}
	for _, c := range n.calls {
		if c.deadline.Before(at) {
			at = c.deadline
		}
	}
	return at, !n.left
}

// Leave tells the neighbours that the node goes. From then on it is responsible for no key and passes all packets to
// its successor. It answers nothing more, so others take it for gone.
func (n *Node) Leave(time.Time) {
	if n.left {
		return
	}
	m := Message{Kind: Leave, From: n.self, Peers: append([]Peer{n.predecessor}, n.successors...)}
	if len(n.successors) > 0 {
		n.transport.Send(n.successors[0].Addr, m)
	}
	if !n.predecessor.IsZero() && !has(n.successors[:min(1, len(n.successors))], n.predecessor) {
		n.transport.Send(n.predecessor.Addr, m)
	}
	n.left = true
	n.fingers = [ident.Exact]Peer{}
	n.calls = nil
}
