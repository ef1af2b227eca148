package rsvp

import "net/netip"

// sendFar carries a message between the ends of a bypass: through it, or as packets are routed where both ends of each
// link see it up.
func (w *world) sendFar(i int, s Send) {
	var to end
	var ok bool
	if s.Through != (Key{}) {
		if w.routers[i].installed[s.Through].Key != s.Through {
			return // it has gone down by the same input, after the message was made
		}
		var what string
		to, what = w.carry(s.Through, i)
		ok = what == "" && w.owns(to.router, s.Dest)
	} else {
		to, ok = w.route(i, s.Dest)
	}
	if !ok {
		return
	}
	if w.sent != nil {
		w.sent(to, s.Message)
	}
	w.launch(to, s, 1)
}

func (w *world) owns(i int, a netip.Addr) bool { return w.routers[i].own(a) }

// route finds the interface by which a packet to an address comes to its router.
func (w *world) route(from int, to netip.Addr) (end, bool) {
	came := map[int]end{from: {}}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		if w.owns(queue[0], to) {
			return came[queue[0]], queue[0] != from
		}
		for index := range len(w.routers[queue[0]].peers) {
			peer := w.routers[queue[0]].peers[index+1]
			if _, seen := came[peer.router]; seen || w.down(end{queue[0], index + 1}) || w.down(peer) {
				continue
			}
			came[peer.router] = peer
			queue = append(queue, peer.router)
		}
	}
	return end{}, false
}

func (w *world) down(e end) bool { return w.routers[e.router].config.Interfaces[e.index-1].Down }
