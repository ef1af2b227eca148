package rsvp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/internal/tshark"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// sorts are those of a message, and of all that are bundled in it.
func sorts(t *testing.T, b []byte) []string {
	t.Helper()
	m, err := message.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{sort(m)}
	for _, inner := range m.Bundled {
		all = append(all, sort(inner))
	}
	return all
}

// sort is the type of a message, with the objects that are rare in it.
func sort(m message.Message) string {
	name := m.Type.String()
	for _, o := range m.Objects {
		switch o := o.(type) {
		case message.RecoveryLabel:
			name += " with RECOVERY_LABEL"
		case message.SuggestedLabel:
			name += " with SUGGESTED_LABEL"
		case message.RestartCap:
			name += " with RESTART_CAP"
		case message.SessionAttribute:
			if o.Affinities != nil {
				name += " with affinities"
			}
		}
	}
	return name
}

// TestTsharkDecodesWhatRoutersSend has a network meet faults, and Wireshark's decoder read what was sent: as many
// messages of each sort as are enough to see all that it consists of.
func TestTsharkDecodesWhatRoutersSend(t *testing.T) {
	const each = 40
	var names []string
	var messages [][]byte
	seen := map[string]int{}
	for _, seed := range []uint64{2, 7, 16, 18} {
		w := randomWorld(t, seed)
		w.sent = func(_ end, b []byte) {
			kinds, rare := sorts(t, b), false
			for _, kind := range kinds {
				seen[kind]++
				rare = rare || seen[kind] <= each
			}
			if rare {
				names = append(names, fmt.Sprintf("%s %d", strings.Join(kinds, ", "), seen[kinds[0]]))
				messages = append(messages, b)
			}
		}
		w.storm(60)
	}
	for _, kind := range []string{"Path", "Resv", "PathErr", "ResvErr", "PathTear", "ResvTear", "Hello", "Ack",
		"Srefresh", "Path with RECOVERY_LABEL", "Path with SUGGESTED_LABEL", "Hello with RESTART_CAP",
		"Path with affinities", "Bundle"} {
		if seen[kind] == 0 {
			t.Errorf("no %s was sent", kind)
		}
	}
	tshark.Check(t, names, messages)
}

// established is a network with an LSP, and what router 1 was sent for it.
func established(t testing.TB) (*world, [][]byte) {
	t.Helper()
	w := chain(t, 3, 1000)
	w.reduce()
	var seeds [][]byte
	w.sent = func(to end, b []byte) {
		if to.router == 1 {
			seeds = append(seeds, b)
		}
	}
	q := w.request(1, 1, 400, 0, 1, 2)
	q.Attribute.Flags = message.SharedStyle
	w.mustAdd(0, q)
	w.run(3 * testRefresh)
	return w, seeds
}

// FuzzReceive has a neighbour send anything to a router with an LSP, or with its entry of before a restart: its tables
// agree after it, and what it sends can be decoded.
func FuzzReceive(f *testing.F) {
	_, seeds := established(f)
	for _, b := range seeds {
		for from := range byte(8) {
			f.Add(b, from)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, from byte) {
		if len(b) > 4 {
			clear(b[2:4])
		}
		w, _ := established(t)
		n, index, neighbour := w.routers[1], 1, 0
		if from&1 != 0 {
			index, neighbour = 2, 2
		}
		if from&2 != 0 {
			w.resume(1, from&4 != 0)
		}
		n.Receive(w.now, arrived(index, w.address(1, neighbour), b))
		n.settle(t)
		n.Tick(w.now + time.Second)
		n.settle(t)
	})
}

// goneRound is a network in which router 1 repairs an LSP, by a bypass to router 2, and what these two were sent for
// it.
func goneRound(t testing.TB) (*world, [][]byte) {
	t.Helper()
	w := ladder(t, 2)
	w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.mustAdd(1, w.bypass(3, 2, 1, 5, 3))
	w.run(testTick)
	var seeds [][]byte
	w.sent = func(to end, b []byte) {
		if to.router == 1 || to.router == 2 {
			seeds = append(seeds, b)
		}
	}
	w.cut(1, 2, false)
	w.run(3 * testRefresh)
	return w, seeds
}

// FuzzReceiveInARepair has anything be sent to the routers at both ends of a bypass: their tables agree after it, and
// after all that they wait for.
func FuzzReceiveInARepair(f *testing.F) {
	_, seeds := goneRound(f)
	for _, b := range seeds {
		for _, kind := range append([]byte{b[1]}, 3, 4, 5, 6) { // errors and teardowns of the LSP as well
			b := append([]byte(nil), b...)
			b[1] = kind
			f.Add(b, byte(0))
			f.Add(b, byte(1))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, to byte) {
		if len(b) > 4 {
			clear(b[2:4])
		}
		w, _ := goneRound(t)
		n, p := w.routers[1], arrived(w.index(1, 4), idOf(2), b)
		if to&1 != 0 {
			n, p = w.routers[2], arrived(w.index(2, 4), w.address(4, 1), b)
		}
		n.Receive(w.now, p)
		n.settle(t)
		n.Tick(w.now + time.Second)
		n.settle(t)
		n.Tick(w.now + settled)
		n.settle(t)
	})
}

// settle takes what a router wants to be done, and compares its tables.
func (n *node) settle(t testing.TB) {
	t.Helper()
	out := n.Take()
	for _, c := range out.Labels {
		if !n.change(c) {
			t.Errorf("%+v is removed, and is not there", c.Entry)
		}
	}
	for _, b := range out.Bandwidth {
		n.left[b.Interface] = b
	}
	for _, s := range out.Send {
		if _, err := message.Decode(s.Message); err != nil {
			t.Errorf("sent to %s: %v", s.Next, err)
		}
	}
	if what := n.wrong(nil); what != "" {
		t.Error(what)
	}
}
