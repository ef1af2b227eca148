package chord_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/internal/virtual"
)

// world is a network of nodes in virtual time.
type world struct {
	*virtual.Network[chord.Message]
	nodes map[netip.AddrPort]*member
	mode  chord.Mode
	sent  map[chord.Kind]int
}

// member is a node of a world. A node that crashed or left is no member any more.
type member struct {
	*chord.Node
	world *world
}

func newWorld(seed uint64) *world {
	return &world{Network: virtual.NewNetwork[chord.Message](seed), nodes: make(map[netip.AddrPort]*member),
		sent: make(map[chord.Kind]int)}
}

func addressOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5610)
}

// start adds a node that joins by the servers with the given numbers.
func (w *world) start(i int, join ...int) *member {
	a := addressOf(i)
	self := chord.Peer{Key: ident.FromName(a.String()).Key(), Addr: a}
	c := chord.Config{Self: self, Mode: w.mode, Nonce: w.Random.Uint64}
	for _, j := range join {
		c.Join = append(c.Join, addressOf(j))
	}
	m := &member{world: w}
	m.Node = chord.New(c, m)
	w.nodes[a] = m
	w.Add(a, m)
	return m
}

// crash takes a node away.
func (w *world) crash(a netip.AddrPort) {
	delete(w.nodes, a)
	delete(w.Hosts, a)
}

// Send makes a member the transport of its node.
func (m *member) Send(to netip.AddrPort, message chord.Message) {
	m.world.sent[message.Kind]++
	message.Peers = slices.Clone(message.Peers)
	m.world.Network.Send(m.Self().Addr, to, message)
}

// ring gives all members that have not left, in the order of their keys.
func (w *world) ring() []*member {
	var ring []*member
	for _, m := range w.nodes {
		ring = append(ring, m)
	}
	slices.SortFunc(ring, func(a, b *member) int { return a.Self().Key.Compare(b.Self().Key) })
	return ring
}

// responsible gives the place in the ring of the one that is responsible for a key.
func responsible(ring []*member, k ident.Key) int {
	i, _ := slices.BinarySearchFunc(ring, k, func(m *member, k ident.Key) int { return m.Self().Key.Compare(k) })
	return i % len(ring)
}

// wrong compares what every node knows with what is; "": all is right.
func (w *world) wrong() string {
	ring := w.ring()
	for i, m := range ring {
		self := m.Self()
		if len(ring) == 1 {
			if !m.Alone() {
				return fmt.Sprintf("%s is the only one and knows others", self)
			}
			continue
		}
		if before := ring[(i+len(ring)-1)%len(ring)].Self(); m.Predecessor() != before {
			return fmt.Sprintf("the predecessor of %s is %s, want %s", self, m.Predecessor(), before)
		}
		var after []chord.Peer
		for j := 1; j < len(ring) && j <= chord.DefaultSuccessors; j++ {
			after = append(after, ring[(i+j)%len(ring)].Self())
		}
		if !slices.Equal(m.Successors(), after) {
			return fmt.Sprintf("the successors of %s are %s, want %s", self, m.Successors(), after)
		}
		for f := range ident.Exact {
			if want := ring[responsible(ring, self.Key.Plus(f))].Self(); m.Finger(f) != want {
				return fmt.Sprintf("finger %d of %s is %s, want %s", f, self, m.Finger(f), want)
			}
		}
	}
	return ""
}
