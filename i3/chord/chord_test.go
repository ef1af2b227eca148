package chord_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
)

// limit is the time within which a ring has to be right, after the last change.
const limit = 2 * time.Minute

func randomKey(w *world) ident.Key {
	var b [ident.KeySize]byte
	for i := range b {
		b[i] = byte(w.Random.Uint32())
	}
	return ident.KeyFrom(b)
}

// Servers come, leave and crash while messages get lost. When that has ended, every node knows the right neighbours and
// fingers, all nodes agree on who is responsible, and keys get there in few steps.
func TestRingsBecomeRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		w.mode = rapid.SampledFrom([]chord.Mode{chord.Iterative, chord.Recursive}).Draw(t, "mode")
		w.Loss = rapid.SampledFrom([]float64{0, 0.05, 0.2}).Draw(t, "loss")
		// The first server is the one by which all others join; it stays.
		w.start(0)
		next := 1
		add := func(*rapid.T) {
			if next < 64 {
				w.start(next, 0)
				next++
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "servers at the start") {
			add(t)
		}
		other := func(t *rapid.T) *member {
			return w.nodes[addressOf(rapid.IntRange(1, next).Draw(t, "server"))]
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": add,
			"crash": func(t *rapid.T) {
				if m := other(t); m != nil {
					w.crash(m.Self().Addr)
				}
			},
			"restart": func(t *rapid.T) {
				if i := rapid.IntRange(1, next).Draw(t, "server"); i < next {
					w.start(i, 0)
				}
			},
			"leave": func(t *rapid.T) {
				if m := other(t); m != nil {
					m.Leave(w.Now)
					w.crash(m.Self().Addr)
				}
			},
			"wait": func(t *rapid.T) {
				w.Run(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
			},
		})
		w.Loss = 0
		if what := w.Until(limit, w.wrong); what != "" {
			t.Fatalf("%d servers: %s", len(w.nodes), what)
		}
		w.Run(10 * time.Second) // until no server passes on what was its own lately
		checkRouting(t, w)
		w.Run(20 * time.Second)
		if what := w.wrong(); what != "" {
			t.Fatalf("the ring of %d was right and is not any more: %s", len(w.nodes), what)
		}
	})
}

// checkRouting sends keys from node to node, by Next and by Routes, and looks them up.
func checkRouting(t *rapid.T, w *world) {
	ring := w.ring()
	bound := 2*math.Log2(float64(len(ring))) + 2
	for range 20 {
		k := randomKey(w)
		if w.Random.IntN(4) == 0 {
			k = ring[w.Random.IntN(len(ring))].Self().Key // the end of an interval
		}
		want := ring[responsible(ring, k)]
		at, steps := ring[w.Random.IntN(len(ring))], 0
		for !at.Owns(k) {
			next, ok := at.Next(k)
			routes := at.Routes()
			if routed, _ := routes.Next(k); !ok || routed != next || routes.Owns(k) {
				t.Fatalf("at %s, %s goes to %s, by the table to %s", at.Self(), k, next, routed)
			}
			at = w.nodes[next.Addr]
			if steps++; float64(steps) > bound {
				t.Fatalf("%s does not arrive within %d steps in a ring of %d", k, steps, len(ring))
			}
		}
		if routes := at.Routes(); at != want || !routes.Owns(k) {
			t.Fatalf("%s arrives at %s, want %s", k, at.Self(), want.Self())
		}
		for _, mode := range []chord.Mode{chord.Iterative, chord.Recursive} {
			var found chord.Peer
			asks := ring[w.Random.IntN(len(ring))]
			asks.Lookup(w.Now, k, mode, func(_ time.Time, p chord.Peer, _ error) { found = p })
			missing := func() string {
				if found != want.Self() {
					return fmt.Sprintf("a lookup of %s finds %s, want %s", k, found, want.Self())
				}
				return ""
			}
			if what := w.Until(time.Minute, missing); what != "" {
				t.Fatal(what)
			}
		}
	}
}

// The tables cover the ring without gaps and overlaps also while they are wrong.
func TestRoutesAgreeWithNextWhileTheRingChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		w.Loss = 0.3
		w.start(0)
		for i := 1; i < 12; i++ {
			w.start(i, 0)
		}
		for range 20 {
			w.Run(time.Duration(w.Random.IntN(1500)) * time.Millisecond)
			switch i := 1 + w.Random.IntN(11); w.Random.IntN(3) {
			case 0:
				w.crash(addressOf(i))
			case 1:
				w.start(i, 0)
			}
			for _, m := range w.nodes {
				k := randomKey(w)
				routes := m.Routes()
				if n := len(routes.Hops); n > 0 && w.Random.IntN(2) == 0 {
					k = routes.Hops[w.Random.IntN(n)].To
				}
				next, ok := m.Next(k)
				routed, found := routes.Next(k)
				if next != routed || ok != found || m.Owns(k) != routes.Owns(k) {
					t.Fatalf("%s goes to %s, by the table to %s", k, next, routed)
				}
				for i, h := range routes.Hops {
					before := routes.Hops[(i+len(routes.Hops)-1)%len(routes.Hops)]
					if h.From != before.To || h.From == h.To && len(routes.Hops) > 1 {
						t.Fatalf("%+v follows %+v", h, before)
					}
				}
			}
		}
	})
}

func TestRingOfOneOwnsEverything(t *testing.T) {
	w := newWorld(1)
	only := w.start(0)
	w.Run(time.Minute)
	routes := only.Routes()
	if !only.Alone() || !only.Owns(randomKey(w)) || routes.Own != chord.OwnAll || len(routes.Hops) != 0 {
		t.Errorf("the only server has the routes %+v", routes)
	}
}

func TestNodeThatHasNotJoinedOwnsItsKeysOnlyWhenItKnowsThem(t *testing.T) {
	w := newWorld(1)
	for i := range 8 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	joins := w.start(8, 0)
	for joins.Predecessor().IsZero() {
		if !joins.Alone() && joins.Owns(joins.Self().Key) {
			t.Fatal("a node without a predecessor owns keys")
		}
		w.Run(10 * time.Millisecond)
	}
	if !joins.Owns(joins.Self().Key) {
		t.Error("a node with a predecessor does not own its own key")
	}
}

// A node that joins is responsible for its keys within a few round trips. From then on they reach it from everywhere,
// though its predecessor learns of it later.
func TestKeysReachANodeThatJoinsBeforeItsPredecessorKnowsIt(t *testing.T) {
	w := newWorld(11)
	for i := range 8 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	joins := w.start(8, 0)
	ring := w.ring()
	at := responsible(ring, joins.Self().Key)
	before, after := ring[(at+8)%9], ring[(at+1)%9]
	for after.Owns(joins.Self().Key) {
		w.Run(time.Millisecond)
	}
	w.Run(200 * time.Millisecond) // the way there and back, twice
	if before.Successors()[0] == joins.Self() {
		t.Fatal("the predecessor knows it already: this world's seed is not what the test is for")
	}
	if !joins.Owns(joins.Self().Key) || !joins.Owns(before.Self().Key.Plus(0)) || joins.Owns(before.Self().Key) {
		t.Error("the node does not own its keys")
	}
	for _, from := range ring {
		for at, steps := from, 0; at != joins; steps++ {
			next, ok := at.Next(joins.Self().Key)
			if !ok || steps == 9 {
				t.Fatalf("its key does not reach it from %s", from.Self())
			}
			at = w.nodes[next.Addr]
		}
	}
}

func TestMessagesOfStrangersChangeNothing(t *testing.T) {
	w := newWorld(8)
	for i := range 4 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	victim := w.ring()[0]
	stranger := chord.Peer{Key: victim.Self().Key.Plus(3), Addr: addressOf(200)}
	names := []chord.Peer{stranger, {Key: stranger.Key, Addr: addressOf(1)}, {}, victim.Self()}
	for kind := chord.Find; kind <= chord.Leave; kind++ {
		for _, from := range names {
			m := chord.Message{Kind: kind, Nonce: 1, From: from, Notify: true, Done: true,
				Key: stranger.Key, Peers: []chord.Peer{stranger, stranger}}
			victim.Handle(w.Now, stranger.Addr, m)
		}
	}
	w.Run(20 * time.Second)
	if what := w.wrong(); what != "" {
		t.Error(what)
	}
}

func TestAnswersAreNotLongerThanRequests(t *testing.T) {
	w := newWorld(9)
	for i := range 12 {
		w.start(i, 0)
	}
	if what := w.Until(limit, w.wrong); what != "" {
		t.Fatal(what)
	}
	var answers []chord.Message
	client := transport(func(_ netip.AddrPort, m chord.Message) { answers = append(answers, m) })
	n := chord.New(chord.Config{Self: w.ring()[0].Self(), Nonce: w.Random.Uint64}, client)
	for _, kind := range []chord.Kind{chord.Find, chord.Query, chord.Ping} {
		for room := range 3 {
			answers = nil
			request := chord.Message{Kind: kind, Nonce: 5, Peers: make([]chord.Peer, room)}
			n.Handle(w.Now, addressOf(99), request)
			for _, a := range answers {
				if len(a.Peers) > room || a.Nonce != 5 {
					t.Errorf("the answer to %s with room for %d has %d", kind, room, len(a.Peers))
				}
			}
		}
	}
}

type transport func(to netip.AddrPort, m chord.Message)

func (t transport) Send(to netip.AddrPort, m chord.Message) { t(to, m) }

// A ring's traffic per node grows with the logarithm of its size, not with the size.
func TestUpkeepIsModest(t *testing.T) {
	perNode := func(size int) float64 {
		w := newWorld(10)
		for i := range size {
			w.start(i, 0)
		}
		if what := w.Until(limit, w.wrong); what != "" {
			t.Fatal(what)
		}
		clear(w.sent)
		w.Run(time.Minute)
		sum := 0
		for _, n := range w.sent {
			sum += n
		}
		return float64(sum) / 60 / float64(size)
	}
	small, large := perNode(8), perNode(64)
	if large > 4*small || large > 25 {
		t.Errorf("messages a second and node: %.1f in a ring of 8, %.1f in one of 64", small, large)
	}
	t.Logf("messages a second and node: %.1f in a ring of 8, %.1f in one of 64", small, large)
}
