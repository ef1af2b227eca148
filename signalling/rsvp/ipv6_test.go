package rsvp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// six is an address of IPv6 in the place of one of IPv4.
func six(a netip.Addr) netip.Addr {
	b := a.As4()
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 12: b[0], 13: b[1], 14: b[2], 15: b[3]})
}

// toIPv6 has all routers speak IPv6 alone.
func (w *world) toIPv6() {
	for i, n := range w.routers {
		n.config.ID = six(n.config.ID)
		for j := range n.config.Interfaces {
			p := &n.config.Interfaces[j].Prefix
			*p = netip.PrefixFrom(six(p.Addr()), p.Bits()+96)
		}
		w.start(i)
	}
}

// overIPv6 is the request with a session of IPv6; its route is that of the world.
func (q Request) overIPv6() Request {
	q.Key.Session.End, q.Key.Session.Extended = six(q.Key.Session.End), six(q.Key.Session.Extended)
	q.Key.Sender = six(q.Key.Sender)
	return q
}

// Sessions of IPv6 (RFC 3209, section 4.6.1.2) are set up, replaced, refreshed by numbers, brought back after a
// restart, and torn down.
func TestLSPsOverIPv6(t *testing.T) {
	w := chain(t, 4, 1000)
	w.greet(time.Second)
	w.reduce()
	w.toIPv6()
	old := w.request(1, 1, 400, 0, 1, 2, 3).overIPv6()
	old.Attribute.Flags = message.SharedStyle
	w.mustAdd(0, old)
	w.run(testTick)
	e, up := w.routers[0].told(Up, old.Key)
	if !up || len(e.Route) == 0 || e.Route[0].Addr != w.address(0, 1) {
		t.Fatalf("up: %t, by %+v", up, e.Route)
	}
	w.check()
	w.run(4 * testRefresh)
	larger := old
	larger.Key.LSP, larger.Replaces, larger.Bandwidth = 2, 1, 700
	w.mustAdd(0, larger)
	w.run(testTick)
	if _, up := w.routers[0].told(Replaced, old.Key); !up {
		t.Error("the larger one does not replace it")
	}
	delete(w.routers[0].wanted, old.Key)
	w.start(2)
	w.run(4 * testRefresh)
	w.check()
	tooMuch := w.request(2, 1, 400, 0, 1, 2, 3).overIPv6()
	if err := w.add(0, tooMuch); err == nil {
		t.Error("more than there is, is admitted")
	}
	w.removeLSP(0, tooMuch.Key)
	w.removeLSP(0, larger.Key)
	w.run(testTick)
	for i, n := range w.routers {
		if len(n.lsps) > 0 {
			t.Errorf("router %d keeps %d LSPs", i, len(n.lsps))
		}
	}
	w.check()
}

// A link fails, and packets go round it by a bypass of IPv6.
func TestLSPsOverIPv6AreRepaired(t *testing.T) {
	w := ladder(t, 0)
	w.toIPv6()
	q := w.guarded(1, 400, 0, 1, 2, 3).overIPv6()
	k := w.mustAdd(0, q)
	w.mustAdd(1, w.bypass(9, 2, 1, 4, 2).overIPv6())
	w.mustRepair(k)
	w.run(4 * testRefresh)
	w.repaired(k, 1)
}
