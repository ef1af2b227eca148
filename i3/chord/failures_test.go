package chord_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
)

func TestNeighboursTakeOverAtOnceWhenANodeLeaves(t *testing.T) {
	w := newWorld(2)
	for i := range 8 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	ring := w.ring()
	before, leaves, after := ring[2], ring[3], ring[4]
	leaves.Leave(w.Now)
	if leaves.Owns(leaves.Self().Key) {
		t.Error("a node that has left owns keys")
	}
	if next, ok := leaves.Next(randomKey(w)); !ok || next != after.Self() {
		t.Errorf("a node that has left sends packets to %s, want its successor", next)
	}
	w.Run(150 * time.Millisecond) // one way, and a ping there and back
	if !after.Owns(leaves.Self().Key) || after.Predecessor() != before.Self() {
		t.Error("the successor has not taken the keys over")
	}
	if before.Successors()[0] != after.Self() {
		t.Error("the predecessor still has it as successor")
	}
	if _, ok := leaves.Due(); ok {
		t.Error("a node that has left wants to be called")
	}
}

func TestKeysStayOwnedWhileThePredecessorIsGone(t *testing.T) {
	w := newWorld(3)
	for i := range 3 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	ring := w.ring()
	m, gone := ring[1], ring[0]
	w.crash(gone.Self().Addr)
	noticed := func() string {
		if !m.Owns(m.Self().Key) {
			t.Fatal("the node's own key is not its own")
		}
		if m.Predecessor() == gone.Self() {
			return "still has the old predecessor"
		}
		return ""
	}
	if what := w.Until(limit, noticed); what != "" {
		t.Fatal(what)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
}

// More servers may fail at once than a node knows as its neighbours: it goes on with its fingers.
func TestRingOutlivesTheCrashOfAllNeighbours(t *testing.T) {
	w := newWorld(4)
	for i := range 32 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	// One server stays, and three that it knows as fingers only.
	var stays map[netip.AddrPort]bool
	for _, m := range w.ring() {
		near := append(m.Successors(), m.Predecessor(), chord.Peer{Addr: addressOf(0)})
		stays = map[netip.AddrPort]bool{m.Self().Addr: true}
		for f := 125; f < ident.Exact; f++ {
			if !slices.Contains(near, m.Finger(f)) {
				stays[m.Finger(f).Addr] = true
			}
		}
		if len(stays) == 4 && !stays[addressOf(0)] {
			break
		}
	}
	if len(stays) != 4 {
		t.Fatal("no server of this ring has three fingers that are not its neighbours")
	}
	for a := range w.nodes {
		if !stays[a] {
			w.crash(a)
		}
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
}

func TestRingsThatFormedApartBecomeOne(t *testing.T) {
	w := newWorld(5)
	east := func(a netip.AddrPort) bool { return a.Addr().As4()[3]%2 == 0 }
	w.Cut = func(from, to netip.AddrPort) bool { return east(from) != east(to) }
	for i := range 16 {
		w.start(i, 0, 1)
	}
	w.Run(time.Minute)
	for _, m := range w.ring() {
		for _, p := range m.Successors() {
			if east(p.Addr) != east(m.Self().Addr) {
				t.Fatalf("%s knows %s, which it cannot reach", m.Self(), p)
			}
		}
	}
	w.Cut = nil
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
}

func TestFirstServerReturnsToTheRingAfterACrash(t *testing.T) {
	w := newWorld(6)
	w.start(0)
	for i := 1; i < 6; i++ {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	w.crash(addressOf(0))
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	w.start(0) // it knows nobody: the others find it
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
}

// The neighbours of a server that left know it no more, but the fingers of others still lead to it.
func TestServerThatLeftReturnsAtOnce(t *testing.T) {
	for i := 1; i < 32; i++ {
		w := newWorld(6)
		for i := range 32 {
			w.start(i, 0)
		}
		if what := w.Until(limit, w.wrong); what != "" {
			t.Fatal(what)
		}
		w.nodes[addressOf(i)].Leave(w.Now)
		w.Run(100 * time.Millisecond)
		w.start(i, 0)
		if what := w.Until(limit, w.wrong); what != "" {
			t.Fatalf("server %d: %s", i, what)
		}
	}
}

// With one message in ten lost for good, the ring is right again and again, and never far from it.
func TestRingIsRightUnderConstantLoss(t *testing.T) {
	w := newWorld(7)
	w.Loss = 0.1
	w.start(0)
	for i := 1; i < 24; i++ {
		w.start(i, 0)
	}
	for round := range 5 {
		if what := w.Until(limit, w.wrong); what != "" {
			t.Fatalf("round %d: %s", round, what)
		}
		w.Run(30 * time.Second)
	}
}
