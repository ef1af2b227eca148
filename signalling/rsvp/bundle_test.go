package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Messages that go to one neighbour at the same time go in Bundles that fit into a packet, if the neighbour takes them;
// no more than one by one if it does not, or if they are signed.
func TestMessagesOfOneMomentAreBundled(t *testing.T) {
	const lsps, short = 40, 576
	for name, c := range map[string]struct {
		set     func(*world)
		bundled bool
	}{
		"to a neighbour that takes them": {(*world).reduce, true},
		"to one that does not":           {func(*world) {}, false},
		"by TTL 255": {func(w *world) {
			for _, n := range w.routers {
				for j := range n.config.Interfaces {
					n.config.Interfaces[j].GTSM = true
				}
			}
			w.reduce()
		}, true},
		"by a short link": {func(w *world) {
			for _, n := range w.routers {
				for j := range n.config.Interfaces {
					n.config.Interfaces[j].MTU = short
				}
			}
			w.reduce()
		}, true},
		"signed": {func(w *world) {
			w.sign(message.Key{ID: 5, Algorithm: message.SHA256, Secret: []byte("secret")})
			w.reduce()
		}, false},
	} {
		w := chain(t, 3, 1000)
		c.set(w)
		w.mustAdd(0, w.shared(1000, 1, 1, 0, 1, 2)) // by which the neighbours tell what they take
		w.run(testTick)
		var bundles, inside, alone int
		w.sent = func(_ end, b []byte) {
			m, err := message.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case m.Type != message.Bundle && (m.Type == message.Path || m.Type == message.Resv):
				alone++
			case m.Type == message.Bundle:
				bundles++
				if inside += len(m.Bundled); len(m.Bundled) < 2 || len(b) > bundleMax+8 ||
					name == "by a short link" && len(b)+20 > short {
					t.Errorf("%s: a Bundle of %d messages, %d bytes", name, len(m.Bundled),
						len(b))
				}
			}
		}
		n := w.routers[0]
		var keys []Key
		for i := range lsps {
			q := w.shared(uint16(1+i), 1, 1, 0, 1, 2)
			if err := n.Add(w.now, q); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, q.Key)
		}
		w.flush(0)
		w.run(testTick)
		for _, k := range keys {
			if s := n.lsps[k]; s == nil || s.resv == nil {
				t.Errorf("%s: %s is not up", name, k)
			}
		}
		if got := bundles > 0; got != c.bundled || c.bundled && (alone > lsps || inside < 2*lsps) {
			t.Errorf("%s: %d bundles of %d messages, and %d alone", name, bundles, inside, alone)
		}
	}
}
