package chord_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
)

// world is a network of nodes in memory, in virtual time. All that happens follows from its seed.
type world struct {
	now    time.Time
	events events
	count  int
	random *rand.Rand
	loss   float64
	nodes  map[netip.AddrPort]*member
	mode   chord.Mode
	sent   map[chord.Kind]int
	cut    func(from, to netip.AddrPort) bool // messages that do not arrive
}

// member is a node of a world. A node that crashed or left is no member any more.
type member struct {
	*chord.Node
	world   *world
	wakesAt time.Time
}

func newWorld(seed uint64) *world {
	return &world{now: time.Unix(1e9, 0), random: rand.New(rand.NewPCG(seed, 1)),
		nodes: make(map[netip.AddrPort]*member), sent: make(map[chord.Kind]int)}
}

func addressOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5610)
}

// start adds a node that joins by the servers with the given numbers.
func (w *world) start(i int, join ...int) *member {
	a := addressOf(i)
	self := chord.Peer{Key: ident.FromName(a.String()).Key(), Addr: a}
	c := chord.Config{Self: self, Mode: w.mode, Nonce: w.random.Uint64}
	for _, j := range join {
		c.Join = append(c.Join, addressOf(j))
	}
	m := &member{world: w}
	m.Node = chord.New(c, m)
	w.nodes[a] = m
	m.wake()
	return m
}

// Send makes a member the transport of its node.
func (m *member) Send(to netip.AddrPort, message chord.Message) {
	w, from := m.world, m.Self().Addr
	w.sent[message.Kind]++
	if w.random.Float64() < w.loss || w.cut != nil && w.cut(from, to) {
		return
	}
	message.Peers = slices.Clone(message.Peers)
	w.after(time.Duration(1+w.random.IntN(50))*time.Millisecond, func() {
		if receiver := w.nodes[to]; receiver != nil {
			receiver.Handle(w.now, from, message)
			receiver.wake()
		}
	})
}

// wake sees to it that the node is told when something is due.
func (m *member) wake() {
	due, ok := m.Due()
	if !ok {
		return
	}
	at := due
	if at.Before(m.world.now) {
		at = m.world.now
	}
	if m.wakesAt.After(m.world.now) && !at.Before(m.wakesAt) {
		return
	}
	m.wakesAt = at
	m.world.after(at.Sub(m.world.now), func() {
		if m.world.nodes[m.Self().Addr] == m && !m.wakesAt.After(m.world.now) {
			m.wakesAt = time.Time{}
			m.Tick(m.world.now)
			m.wake()
		}
	})
}

func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{at: w.now.Add(d), number: w.count, do: do})
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// until lets time pass until there is nothing wrong, and returns what still is after the given time.
func (w *world) until(limit time.Duration, wrong func() string) string {
	end := w.now.Add(limit)
	for {
		what := wrong()
		if what == "" || !w.now.Before(end) {
			return what
		}
		w.run(500 * time.Millisecond)
	}
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

type event struct {
	at     time.Time
	number int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
