package rsvp

import (
	"net/netip"
	"testing"
)

// A router before the last one sends by another way on. Where both ways meet, the LSP is there already: the new way
// gets its label at once, and not with the next refresh.
func TestARouterThatIsNewOnTheWayGetsItsLabelAtOnce(t *testing.T) {
	for seed := range uint64(8) { // the old way is torn down before or after the new one arrives
		w := newWorld(t, seed, 6, 1000, [2]int{5, 0}, [2]int{0, 1}, [2]int{1, 2}, [2]int{0, 3}, [2]int{3, 2},
			[2]int{2, 4})
		way := map[int]int{5: 0, 0: 1, 1: 2, 3: 2, 2: 4}
		for i, n := range w.routers {
			n.Router.config.Route = func(netip.Addr) (int, netip.Addr, bool) {
				for index, peer := range n.peers {
					if peer.router == way[i] {
						return index, w.prefix(peer).Addr(), true
					}
				}
				return 0, netip.Addr{}, false
			}
		}
		q := w.request(1, 1, 400, 5, 0, 1, 2, 4)
		q.Route = nil
		k := w.mustAdd(5, q)
		w.run(testTick)
		w.check()
		way[0] = 3
		for w.routers[3].lsps[k] == nil && w.now < settled {
			w.run(testTick)
		}
		w.run(testTick)
		if e, there := w.routers[0].installed[k]; !there || e.Next != w.address(0, 3) {
			t.Errorf("seed %d: a second later, labels lead to %s: %t", seed, e.Next, there)
		}
		w.run(settled)
		w.check()
	}
}
