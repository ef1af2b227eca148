package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// The slices of these tests: one has reserved three quarters of a card of 40 Mbit/s, the other one nothing.
const (
	thrifty, greedy = 8, 9

	uplink        = "uplink"
	thriftysClass = wiring.FirstClass + thrifty
	restClass     = wiring.FirstClass
)

func card(rate, reserved unit.Rate) wiring.Card {
	return wiring.Card{Rate: rate, Slices: map[uint16]unit.Rate{thrifty: reserved}}
}

// wantCard waits for nothing: what is observed is what ShareCard made.
func (l *lab) wantCard(want wiring.Card) {
	l.Helper()
	is := l.observe().Card
	switch tree := want.Tree(); {
	case is == nil && !want.IsZero(), is != nil && is.Digest() != tree.Digest():
		l.Errorf("at the uplink there is %+v, want %+v", is, tree)
	}
}

// over links a node of the first machine with one of the last, over tunnels of a slice to and from the one between,
// where there is no node.
func (b *bed) over(kind tunnelOf, id uint32, from, to, net string) {
	b.Helper()
	near, relay, far := b.machines[0], b.machines[1], b.machines[2]
	mtu := b.mtu - kind.kind.Overhead(kind.ipv6)
	change := func(p *wire.Port) { p.MTU = mtu }
	p, q := near.port(from, change, net+".0/31"), far.port(to, change, net+".1/31")
	tunnel := func(m, peer *machine, proxy string, number uint32) {
		m.must(m.AddTunnel(m.ctx, kind.tunnel(m, peer, proxy, id<<12|number, mtu)))
	}
	tunnel(relay, near, p, 1)
	tunnel(relay, far, q, 2)
	relay.must(relay.Join(relay.ctx, p, q))
	tunnel(near, relay, q, 1)
	near.must(near.Join(near.ctx, p, q))
	tunnel(far, relay, p, 2)
	far.must(far.Join(far.ctx, q, p))
	near.ping(from, net+".1")
}

// What is reserved of a card is there under a flood of another slice, also where the line card would send by itself.
func TestWhatASliceReservesOfTheCardHoldsUnderAFlood(t *testing.T) {
	for _, noXDP := range []bool{false, true} {
		t.Run(fmt.Sprint("without line card ", noXDP), func(t *testing.T) {
			b := newBed(t, 3, 1500)
			for _, m := range b.machines {
				config := wire.UnderlayConfig{Interfaces: []string{nic}, NoXDP: noXDP}
				m.must(m.OpenUnderlay(m.ctx, config))
			}
			near, relay, far := b.machines[0], b.machines[1], b.machines[2]
			b.over(tunnelOf{kind: slice.EGRE}, thrifty, "a", "b", "192.0.2")
			b.over(tunnelOf{kind: slice.VXLAN}, greedy, "c", "d", "198.51.100")
			if !noXDP {
				far.takes("b", "192.0.2.1")
				before := relay.counted()
				near.sends("a", "192.0.2.1", 100, payload)
				relay.wantCounted(before, datapath.ByLineCard, 100)
			}
			relay.must(relay.ShareCard(relay.ctx, card(40e6, 30e6)))
			relay.wantCard(card(40e6, 30e6))
			defer near.floods("a", "192.0.2.1")()
			for range 3 {
				defer near.floods("c", "198.51.100.1")()
			}
			before := relay.counted()
			sent, arrived := b.bothBacklogged(relay, far)
			t.Logf("%.3f times as much sent, %.3f times as much arrived", sent, arrived)
			for _, ratio := range []float64{sent, arrived} {
				if ratio < 2.6 || ratio > 3.4 {
					t.Errorf("with 3/4 reserved, %.2f times as much was sent as without, and %.2f "+
						"times as much arrived; want 3", sent, arrived)
				}
			}
			after := relay.counted()
			if past := after[datapath.ByLineCard] - before[datapath.ByLineCard]; past != 0 {
				t.Errorf("the line card took %d packets past the queues", past)
			}
			// Without reservations, the line card sends again.
			relay.must(relay.ShareCard(relay.ctx, wiring.Card{}))
			relay.wantCard(wiring.Card{})
			if !noXDP {
				relay.wantCounted(relay.counted(), datapath.ByLineCard, 100)
			}
		})
	}
}

// bothBacklogged waits until both slices have sent enough by the uplink of a machine, with packets of both waiting all
// the time. It gives how many times as many bytes as the greedy one the thrifty one has sent, and got to the nodes of
// another machine.
func (b *bed) bothBacklogged(at, to *machine) (sent, arrived float64) {
	b.Helper()
	const enough = 5000 // packets
	var before, now map[uint16]wire.QueueStats
	var thenAt, nowAt map[string]wire.Traffic
	testkit.Eventually(b, func() (err error) {
		now = at.queues(uplink)
		if nowAt, err = to.Counters(to.ctx); err != nil {
			return err
		}
		if now[thriftysClass].Waiting == 0 || now[restClass].Waiting == 0 { // the senders did not get to send
			before = nil
			return fmt.Errorf("nothing waits: %+v", now)
		}
		if before == nil {
			before, thenAt = now, nowAt
		}
		if n := now[wiring.RootClass].Frames - before[wiring.RootClass].Frames; n < enough {
			return fmt.Errorf("%d packets were sent", n)
		}
		return nil
	}, time.Minute, "slices to use up the card")
	bytes := func(class uint16) float64 { return float64(now[class].Bytes - before[class].Bytes) }
	came := func(port int) float64 {
		name := fmt.Sprintf("s7p%d", 100*to.number+port)
		return float64(nowAt[name].ToNode.Bytes - thenAt[name].ToNode.Bytes)
	}
	return bytes(thriftysClass) / bytes(restClass), came(1) / came(2)
}

// Super-frames pass the queues of the card as they are; on the wire they are as ever.
func TestSuperFramesPassTheQueuesOfTheCard(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		b := newBed(t, 2, 1500)
		b.openUnderlays()
		b.keys = thrifty << 12
		a, c := b.pair(kind)
		a.ping("a", "192.0.2.1")
		c.ping("b", "2001:db8::")
		for _, m := range b.machines {
			m.must(m.ShareCard(m.ctx, card(5e9, 1e9)))
		}
		from, to := a.nodeNamespace("a"), c.nodeNamespace("b")
		for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
			was := a.queues(uplink)
			frames, bytes := sentBy(t, a.ns, nic)
			into, bytesInto := a.into(c.port)
			carry(t, from, to, address, 8<<20)
			framesNow, bytesNow := sentBy(t, a.ns, nic)
			intoNow, bytesIntoNow := a.into(c.port)
			if mean := (bytesIntoNow - bytesInto) / (intoNow - into); mean < 3*1514 {
				t.Errorf("%s: frames of %d bytes went into the tunnel", address, mean)
			}
			if onWire := (bytesNow - bytes) / (framesNow - frames); onWire > 1514 {
				t.Errorf("%s: frames of %d bytes on the wire", address, onWire)
			}
			is := a.queues(uplink)
			if n := is[thriftysClass].Bytes - was[thriftysClass].Bytes; n < 8<<20 {
				t.Errorf("%s: %d bytes passed the slice's queue", address, n)
			}
			if n := is[restClass].Frames - was[restClass].Frames; n != 0 {
				t.Errorf("%s: %d packets of the slice passed the queue of the others", address, n)
			}
		}
	})
}

// into counts the frames, and their bytes, that went into the tunnel that begins at a port.
func (m *machine) into(port string) (frames, bytes uint64) {
	m.Helper()
	all, err := m.Counters(m.ctx)
	m.must(err)
	return all[port].ToNode.Frames, all[port].ToNode.Bytes
}

// What others do to the card's queues is seen, and mended; packets pass meanwhile. Reservations change in place.
func TestTheQueuesOfTheCardAreMended(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	b.keys = thrifty << 12
	a, _ := b.pair(tunnelOf{kind: slice.EGRE})
	a.ping("a", "192.0.2.1")
	a.wantCard(wiring.Card{})
	want := card(40e6, 30e6)
	for _, change := range []string{
		"qdisc del dev uplink root", "class del dev uplink classid 1:18",
		"class change dev uplink parent 1:1 classid 1:18 htb rate 1mbit", "qdisc replace dev uplink root pfifo",
	} {
		a.must(a.ShareCard(a.ctx, want))
		a.wantCard(want)
		a.inNamespace("", strings.Fields("tc "+change)...)
		a.ping("a", "192.0.2.1")
		if is := a.observe().Card; is == nil || is.Digest() == want.Tree().Digest() {
			t.Errorf("%s: observed %+v", change, is)
		}
	}
	a.must(a.ShareCard(a.ctx, want))
	a.ping("a", "192.0.2.1")
	was := a.queues(uplink)[thriftysClass].Frames
	want = wiring.Card{Rate: 50e6, Slices: map[uint16]unit.Rate{thrifty: 20e6, greedy: 10e6}}
	a.must(a.ShareCard(a.ctx, want))
	a.wantCard(want)
	if is := a.queues(uplink)[thriftysClass].Frames; is < was || was == 0 {
		t.Errorf("the class had sent %d packets, and then %d: it was made anew", was, is)
	}
	a.reopen()
	a.wantCard(want)
	a.ping("a", "192.0.2.1")

	// An uplink that is made anew has none.
	a.must(a.OpenUnderlay(a.ctx, wire.UnderlayConfig{}))
	a.wantCard(wiring.Card{})
	if err := a.ShareCard(a.ctx, want); err == nil {
		t.Error("a card is shared without an uplink")
	}
	a.openUnderlay()
	a.wantCard(wiring.Card{})
	a.must(a.ShareCard(a.ctx, want))
	a.wantCard(want)
	a.must(a.ShareCard(a.ctx, wiring.Card{}))
	a.wantCard(wiring.Card{})
	a.ping("a", "192.0.2.1")
	if state := a.observe(); len(state.Remains) > 0 {
		t.Errorf("remains %v", state.Remains)
	}
}
