package server_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/wire"
)

func TestLoopsOfTriggersEnd(t *testing.T) {
	w := newWorld(8)
	w.startRing(4)
	h := w.host(1)
	a, b := ident.FromName("a"), ident.FromName("b")
	h.insert(0, a, 1, b)
	h.insert(0, b, 2, a)
	h.send(0, "round and round", a)
	w.Run(time.Minute)
	if n := w.drops(server.HopLimit); n != 1 {
		t.Errorf("%d packets were dropped for their hop limit, want 1", n)
	}
}

// Triggers that each lead to two others would make 2^20 packets of one.
func TestTreesOfTriggersAreBounded(t *testing.T) {
	w := newWorld(9)
	w.startRing(4)
	h := w.host(1)
	level := func(i int) ident.ID { return ident.FromName(fmt.Sprint("level ", i)) }
	for i := range 20 {
		h.insert(0, level(i), 1, level(i+1))
		h.insert(0, level(i), 2, level(i+1))
	}
	h.insert(0, level(20), 1)
	before := make(map[*machine]server.Counters)
	for _, m := range w.servers {
		before[m] = m.Counters()
	}
	h.send(0, "x", level(0))
	w.Run(time.Minute)
	if len(h.got) > wire.MaxCopies {
		t.Errorf("one packet became %d", len(h.got))
	}
	var work uint64
	for _, m := range w.servers {
		c := m.Counters()
		work += c.Redirected - before[m].Redirected + c.Passed - before[m].Passed
	}
	// Each of at most 1024 copies is redirected and passed on a few times for each level.
	if work > wire.MaxCopies*20*4 {
		t.Errorf("one packet made the servers send or redirect %d packets", work)
	}
}

func TestOnePacketIsRedirectedSoOftenAtMost(t *testing.T) {
	w := newWorld(9)
	only := w.start(0)
	w.Run(time.Second)
	h := w.host(1)
	a := ident.FromName("a")
	h.insert(0, a, 1, a)
	h.insert(0, a, 2, a)
	h.send(0, "x", a)
	if n := only.Counters().Redirected; n != 256 {
		t.Errorf("one packet was redirected %d times, want 256", n)
	}
}

func TestCopiesAreDividedAmongBranches(t *testing.T) {
	w := newWorld(9)
	w.startRing(2)
	h := w.host(1)
	level := func(i int) ident.ID { return ident.FromName(fmt.Sprint("level ", i)) }
	for i := range 3 {
		h.insert(0, level(i), 1, level(i+1))
		h.insert(0, level(i), 2, level(i+1))
	}
	h.insert(0, level(3), 1)
	for _, c := range []struct{ copies, want int }{{1024, 8}, {8, 8}, {5, 4}, {4, 4}, {1, 1}} {
		h.got = nil
		p := wire.New(wire.Data, []ident.ID{level(0)}, nil)
		p.SetCopies(c.copies)
		h.via(1, p)
		w.Run(time.Second)
		if len(h.got) != c.want {
			t.Errorf("with %d copies %d packets arrive, want %d", c.copies, len(h.got), c.want)
		}
	}
}

func TestGroupLargerThanThePacketsCopiesIsServedInPart(t *testing.T) {
	w := newWorld(10)
	w.startRing(2)
	id := ident.FromName("radio")
	var hosts []*host
	for i := range 4 {
		hosts = append(hosts, w.host(i))
		hosts[i].insert(0, id, byte(i))
	}
	p := wire.New(wire.Data, []ident.ID{id}, []byte("x"))
	p.SetCopies(3)
	hosts[0].via(0, p)
	w.Run(time.Second)
	var got []int
	for _, h := range hosts {
		got = append(got, len(h.got))
	}
	same(t, "copies", got, []int{1, 1, 1, 0})
	if n := w.drops(server.TooManyCopies); n != 1 {
		t.Errorf("%d copies were dropped, want 1", n)
	}
}

func TestStackThatWouldBecomeTooDeepIsDropped(t *testing.T) {
	w := newWorld(11)
	w.startRing(2)
	h := w.host(1)
	a := ident.FromName("a")
	h.insert(0, a, 1, slices.Repeat([]ident.ID{ident.FromName("b")}, 4)...)
	h.send(0, "x", slices.Repeat([]ident.ID{a}, 6)...)
	if n := w.drops(server.StackTooDeep); n != 1 {
		t.Errorf("%d packets were dropped, want 1", n)
	}
}
