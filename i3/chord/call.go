package chord

import (
	"net/netip"
	"slices"
	"time"
)

// call is a request that waits for its answer.
type call struct {
	to       netip.AddrPort
	request  Message
	tries    int
	deadline time.Time
	anybody  bool // a server other than the one asked may answer
	// done is called once: with the answer, or with nil if there was none.
	done func(now time.Time, answer *Message)
}

// ask sends a request and repeats it until it is answered, or was sent as often as Config.Tries says. Then the one that
// was asked leaves all tables, before done is called.
func (n *Node) ask(now time.Time, to netip.AddrPort, m Message, done func(now time.Time, answer *Message)) {
	c := &call{to: to, request: m, done: done, anybody: m.Recursive}
	c.request.From = n.self
	c.request.Nonce = n.config.Nonce()
	n.calls = append(n.calls, c)
	n.send(now, c)
}

func (n *Node) send(now time.Time, c *call) {
	c.tries++
	c.deadline = now.Add(n.config.Timeout)
	n.transport.Send(c.to, c.request)
}

func (n *Node) expireCalls(now time.Time) {
	var failed []*call
	for _, c := range n.calls {
		switch {
		case now.Before(c.deadline):
		case c.tries < n.config.Tries:
			n.send(now, c)
		default:
			failed = append(failed, c)
		}
	}
	for _, c := range failed {
		n.forget(c)
		if !c.anybody {
			n.remove(c.to)
		}
		c.done(now, nil)
	}
}

func (n *Node) forget(c *call) {
	n.calls = slices.DeleteFunc(n.calls, func(other *call) bool { return other == c })
}

// asked reports whether a request of a kind waits for an answer from a server.
func (n *Node) asked(to netip.AddrPort, k Kind) bool {
	for _, c := range n.calls {
		if c.to == to && c.request.Kind == k {
			return true
		}
	}
	return false
}

// answered hands an answer to the request that it belongs to.
func (n *Node) answered(now time.Time, from netip.AddrPort, m *Message) {
	for _, c := range n.calls {
		if c.request.Nonce == m.Nonce && c.request.Kind+1 == m.Kind && (c.to == from || c.anybody) {
			n.forget(c)
			c.done(now, m)
			return
		}
	}
}

// remove takes a peer out of all tables.
func (n *Node) remove(a netip.AddrPort) {
	for i := range n.fingers {
		if n.fingers[i].Addr == a {
			n.fingers[i] = Peer{}
		}
	}
	if n.predecessor.Addr == a {
		n.predecessor, n.passes = Peer{}, false
	}
	n.successors = slices.DeleteFunc(n.successors, func(p Peer) bool { return p.Addr == a })
	if p := n.nearest(); len(n.successors) == 0 && !p.IsZero() {
		n.successors = []Peer{p}
	}
	if n.Alone() {
		n.bounded = false
	}
}

// nearest gives the first finger or predecessor after the node.
func (n *Node) nearest() Peer {
	nearest := n.predecessor
	for _, f := range n.fingers {
		if f.IsZero() || f.Key == n.self.Key {
			continue
		}
		if nearest.IsZero() || n.distance(f).Compare(n.distance(nearest)) < 0 {
			nearest = f
		}
	}
	return nearest
}
