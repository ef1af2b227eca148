package chord

import (
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
)

// Handle takes in a message that came from an address.
func (n *Node) Handle(now time.Time, from netip.AddrPort, m Message) {
	if n.left || m.From.Addr == n.self.Addr || len(m.Peers) > MaxPeers {
		return
	}
	switch m.Kind {
	case Find:
		n.handleFind(from, &m)
	case Query:
		n.handleQuery(now, from, &m)
	case Ping:
		n.transport.Send(from, Message{Kind: Pong, Nonce: m.Nonce, From: n.self})
	case Found:
		if len(m.Peers) == 1 && m.Peers[0].Addr.IsValid() {
			n.answered(now, from, &m)
		}
	case State:
		if len(m.Peers) > 0 {
			n.answered(now, from, &m)
		}
	case Pong:
		n.answered(now, from, &m)
	case Leave:
		n.handleLeave(now, from, &m)
	}
}

func (n *Node) handleQuery(now time.Time, from netip.AddrPort, m *Message) {
	peers := append([]Peer{n.predecessor}, n.successors...)
	peers = peers[:min(len(peers), len(m.Peers))]
	n.transport.Send(from, Message{Kind: State, Nonce: m.Nonce, From: n.self, Peers: peers})
	if m.Notify && m.From.Addr == from {
		n.notified(now, m.From)
	}
}

// notified makes p the predecessor, if it is nearer than the one that is known and answers.
func (n *Node) notified(now time.Time, p Peer) {
	nearer := func() bool {
		return p.Key != n.self.Key && (n.predecessor.IsZero() || p.Key.Between(n.predecessor.Key, n.self.Key))
	}
	if !nearer() || n.asked(p.Addr, Ping) {
		return
	}
	n.ask(now, p.Addr, Message{Kind: Ping}, func(now time.Time, answer *Message) {
		if answer == nil || answer.From != p || !nearer() {
			return
		}
		n.setPredecessor(now, p)
		if len(n.successors) == 0 {
			n.offer(now, p) // two servers: each is the other's successor, too
		}
	})
}

func (n *Node) setPredecessor(now time.Time, p Peer) {
	own, from, _ := n.own()
	n.passes = own == OwnInterval && p.Key.Between(from, n.self.Key)
	n.passed, n.passEnds = from, now.Add(passing*n.config.Stabilize)
	n.predecessor, n.lower, n.bounded = p, p.Key, true
}

// checkPredecessor finds out whether the predecessor still answers.
func (n *Node) checkPredecessor(now time.Time) {
	if p := n.predecessor; !p.IsZero() && !n.asked(p.Addr, Ping) {
		n.ask(now, p.Addr, Message{Kind: Ping}, func(time.Time, *Message) {})
	}
}

// stabilize asks the successor for its neighbours, and tells it that this node is its predecessor.
func (n *Node) stabilize(now time.Time) {
	if n.stabilizing {
		return
	}
	if len(n.successors) == 0 {
		if !n.predecessor.IsZero() {
			n.offer(now, n.predecessor)
		} else {
			n.rejoin(now)
		}
		return
	}
	n.stabilizing = true
	next := n.successors[0]
	n.query(now, next, func(now time.Time, state *Message) {
		n.stabilizing = false
		if state == nil {
			n.stabilize(now) // with the next one of the list
			return
		}
		if len(n.successors) > 0 && n.successors[0] == next {
			n.adopt(next, state)
		}
		n.offer(now, state.Peers[0])
	})
}

func (n *Node) query(now time.Time, p Peer, done func(now time.Time, state *Message)) {
	room := make([]Peer, min(n.config.Successors+1, MaxPeers))
	n.ask(now, p.Addr, Message{Kind: Query, Notify: true, Peers: room}, done)
}

// adopt makes p the successor, and what p says of its own successors the rest of the list.
func (n *Node) adopt(p Peer, state *Message) {
	list := []Peer{p}
	for _, other := range state.Peers[1:] {
		if other.Key == n.self.Key || other.Key == p.Key || len(list) == n.config.Successors {
			break
		}
		if other.Addr.IsValid() && !has(list, other) {
			list = append(list, other)
		}
	}
	n.successors = list
}

// offer makes p the successor if it is nearer than the one there is, and answers.
func (n *Node) offer(now time.Time, p Peer) {
	nearer := func() bool {
		return p.Key != n.self.Key && (len(n.successors) == 0 || p.Key.Between(n.self.Key, n.successors[0].Key))
	}
	if !p.Addr.IsValid() || p.Addr == n.self.Addr || !nearer() || n.asked(p.Addr, Query) {
		return
	}
	n.query(now, p, func(now time.Time, state *Message) {
		if state == nil || state.From != p || !nearer() {
			return
		}
		n.adopt(p, state)
		if before := state.Peers[0]; n.predecessor.IsZero() && before.Addr.IsValid() {
			n.notified(now, before)
		}
		n.offer(now, state.Peers[0])
	})
}

// rejoin asks a server that was named in the configuration for the first server after this one.
func (n *Node) rejoin(now time.Time) {
	if len(n.config.Join) == 0 {
		return
	}
	to := n.config.Join[n.join%len(n.config.Join)]
	if n.asked(to, Find) {
		return
	}
	n.join++
	l := &lookup{key: n.self.Key.Plus(0), joins: true, tries: lookupTries}
	l.done = func(now time.Time, found Peer, err error) {
		if err == nil {
			n.offer(now, found)
		}
	}
	n.step(now, l, Peer{Addr: to})
}

// handleLeave takes a neighbour out of the tables that says that it goes.
func (n *Node) handleLeave(now time.Time, from netip.AddrPort, m *Message) {
	if m.From.Addr != from || len(m.Peers) == 0 {
		return
	}
	wasPredecessor := n.predecessor == m.From
	wasSuccessor := len(n.successors) > 0 && n.successors[0] == m.From
	if !wasPredecessor && !wasSuccessor {
		return
	}
	if wasSuccessor {
		n.adopt(m.From, m)
	}
	n.remove(from)
	if before := m.Peers[0]; wasPredecessor && before.Addr.IsValid() && before.Key != n.self.Key {
		n.lower, n.bounded = before.Key, true
		n.notified(now, before)
	}
	n.stabilize(now)
}

// fixFingers renews the fingers. A finger that was found is right for all starts up to it, so there are about log2 of
// the number of servers to find.
func (n *Node) fixFingers(now time.Time) {
	if n.fixing || len(n.successors) == 0 {
		return
	}
	n.fixing = true
	n.fixFrom(now, n.setFingers(0, n.successors[0]))
}

// setFingers gives p to all fingers from the i-th on that start before p, and returns the first one behind it.
func (n *Node) setFingers(i int, p Peer) int {
	for i < ident.Exact && n.self.Key.Plus(i).In(n.self.Key, p.Key) {
		n.fingers[i] = p
		i++
	}
	return i
}

func (n *Node) fixFrom(now time.Time, i int) {
	if i == ident.Exact {
		n.fixing = false
		return
	}
	n.Lookup(now, n.self.Key.Plus(i), n.config.Mode, func(now time.Time, found Peer, err error) {
		if err != nil {
			n.fixing = false // the next renewal tries again
			return
		}
		if found.Addr == n.self.Addr {
			n.fixFrom(now, n.setFingers(i, n.self))
			return
		}
		n.ask(now, found.Addr, Message{Kind: Ping}, func(now time.Time, answer *Message) {
			if answer == nil || answer.From != found {
				n.fixing = false
				return
			}
			// At least one finger is set: else an answer that is wrong would be asked for without end.
			n.fingers[i] = found
			n.fixFrom(now, n.setFingers(i+1, found))
		})
	})
}
