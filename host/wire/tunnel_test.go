package wire_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// forEachKind runs a test for each encapsulation, over IPv4 and IPv6.
func forEachKind(t *testing.T, f func(t *testing.T, kind tunnelOf)) {
	t.Helper()
	for _, kind := range tunnelKinds {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

func TestNodesOfTwoMachinesReachEachOther(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		b := newBed(t, 2, 1500)
		b.openUnderlays()
		before := b.machines[1].counted()
		a, c := b.pair(kind)
		a.ping("a", "192.0.2.1")
		c.ping("b", "2001:db8::")
		b.machines[1].wantCounted(before, "received", 1)
		b.machines[1].wantCounted(before, "sent", 1)

		state := a.observe()
		have := state.Ports[c.port]
		have.Index = 0
		want := wire.PortState{
			Owner: "lab/far:eth0", Digest: "d1", MTU: have.MTU, Up: true, Peer: a.port, Tunnel: true,
		}
		if !cmp.Equal(have, want) || len(state.Remains) > 0 {
			t.Errorf("the tunnel is %+v, want %+v; remains %v", have, want, state.Remains)
		}
		if peer := state.Ports[a.port].Peer; peer != c.port {
			t.Errorf("the port is joined with %q, want %q", peer, c.port)
		}
		traffic, err := a.Counters(a.ctx)
		a.must(err)
		if into, out := traffic[c.port].ToNode, traffic[a.port].ToNode; into.Frames == 0 || out.Frames == 0 {
			t.Errorf("frames are counted as %+v into the tunnel, %+v out of it", into, out)
		}
		a.must(a.DeletePorts(a.ctx, c.port))
		a.noPing("a", "192.0.2.1")
	})
}

// What is as long as the MTU fits, one byte more is refused by the node's own kernel, and the underlay's MTU is used.
func TestTheUnderlaysMTUIsUsed(t *testing.T) {
	for _, mtu := range []int{1400, 9000} {
		for _, kind := range tunnelKinds {
			t.Run(fmt.Sprintf("%d, %v", mtu, kind), func(t *testing.T) {
				b := newBed(t, 2, mtu)
				b.openUnderlays()
				a, _ := b.pair(kind)
				const headers = 20 + 8
				inner := mtu - kind.kind.Overhead(kind.ipv6)
				a.ping("a", "192.0.2.1", "-M", "do", "-s", fmt.Sprint(inner-headers))
				tooLong := fmt.Sprint(inner - headers + 1)
				out, err := a.exec("a", "ping", "-c1", "-W1", "-M", "do", "-s", tooLong, "192.0.2.1")
				if err == nil {
					t.Errorf("a packet longer than %d went through:\n%s", inner, out)
				}
			})
		}
	}
}

// Segments that lie in several buffers arrive, too, which Linux before 6.3 loses where a program of XDP redirects them.
func TestLongSegmentsCrossATunnel(t *testing.T) {
	for _, kind := range tunnelKinds {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 2, 9000)
			b.openUnderlays()
			a, c := b.pair(kind)
			here, there := a.nodeNamespace("a"), c.nodeNamespace("b")
			carry(b, here, there, "192.0.2.1", 1<<20)
			carry(b, there, here, "2001:db8::", 1<<20)
		})
	}
}

func TestAnyFrameCrossesATunnel(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		for _, queued := range []string{"nowhere", "at the link", "at the card"} {
			b := newBed(t, 2, 1600)
			b.openUnderlays()
			a, c := b.pair(kind)
			switch queued {
			case "at the link":
				a.must(a.Shape(a.ctx, a.port, wire.FromNode, slice.Shape{Rate: 1e9}))
			case "at the card":
				a.must(a.ShareCard(a.ctx, card(1e9, 1e8)))
			}
			a.ping("a", "192.0.2.1")
			from, to := a.tap("a"), c.tap("b")
			for _, f := range anyFrames {
				station := f.to
				if slices.Equal(station, mac(2)) {
					station = mac(201)
				}
				frame := ethernet(station, mac(101), f.head, f.load)
				from.send(frame)
				if kind, ok := to.sees(frame); !ok || kind != f.kind {
					t.Errorf("queued %s, %s: came through: %v, taken as %d, want %d", queued,
						f.name, ok, kind, f.kind)
				}
			}
		}
	})
}

func TestShapedLinkBetweenMachines(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	a, c := b.pair(tunnelOf{kind: slice.EGRE})
	a.must(a.Shape(a.ctx, a.port, wire.FromNode, slice.Shape{Rate: 10e6}))
	a.wantRate("a", "192.0.2.1", c.port, 10e6)
	p := a.observe().Ports
	if p[a.port].FromNode.Rate != 10e6 || p[c.port].ToNode.Rate != 10e6 {
		t.Errorf("observed %+v and %+v", p[a.port], p[c.port])
	}
	// What comes to a router in a queue enters again.
	a.reinject(a.port, true)
	a.wantRate("a", "192.0.2.1", c.port, 10e6)
	a.reinject(a.port, false)
	a.must(a.Shape(a.ctx, c.port, wire.ToNode, slice.Shape{}))
	a.wantFaster("a", "192.0.2.1", c.port, 30e6)
	// A tunnel that is given another peer keeps its queue, and its place.
	a.must(a.Shape(a.ctx, a.port, wire.FromNode, slice.Shape{Rate: 10e6}))
	before := a.observe().Ports[c.port]
	moved := tunnelOf{kind: slice.EGRE, ipv6: true}
	for _, side := range [][2]end{{a, c}, {c, a}} {
		w := moved.tunnel(side[0].machine, side[1].machine, side[1].port, 1, 1500-slice.EGRE.Overhead(false))
		w.Digest = "d2"
		side[0].must(side[0].AddTunnel(side[0].ctx, w))
	}
	a.ping("a", "192.0.2.1")
	after := a.observe().Ports[c.port]
	before.Digest = "d2"
	if !cmp.Equal(before, after) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// Two slices have the same addresses.
func TestSlicesOverlapBetweenMachines(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	kind := tunnelOf{kind: slice.EGRE}
	b.pair(kind)
	mtu := func(p *wire.Port) { p.MTU = 1458 }
	a, c := end{machine: b.machines[0]}, end{machine: b.machines[1]}
	a.port = a.lab.port("a2", mtu, "192.0.2.0/31")
	c.port = c.lab.port("b2", mtu, "192.0.2.1/31")
	a.noPing("a2", "192.0.2.1")
	b.link(kind, a, c)
	a.ping("a", "192.0.2.1")
	a.ping("a2", "192.0.2.1")
	c.must(c.SetUp(c.ctx, c.port, false))
	a.noPing("a2", "192.0.2.1")
	a.ping("a", "192.0.2.1")
}

func TestInterfaceGoesDownAndUp(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	a, _ := b.pair(tunnelOf{kind: slice.VXLAN})
	a.ping("a", "192.0.2.1")
	m := b.machines[0]
	m.run("ip", "link", "set", nic, "down")
	a.noPing("a", "192.0.2.1")
	m.run("ip", "link", "set", nic, "up")
	a.ping("a", "192.0.2.1")
}

// A server that goes and comes back is not noticed by what is on its way.
func TestServersRestartUnderTraffic(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	a, c := b.pair(tunnelOf{kind: slice.EGRE})
	a.ping("a", "192.0.2.1")
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	const count = "200"
	go func() {
		out, err := a.exec("a", "ping", "-q", "-c"+count, "-i0.005", "192.0.2.1")
		done <- result{out, err}
	}()
	before := a.observe()
	for range 2 {
		a.reopen()
		a.openUnderlay()
		c.reopen()
		c.openUnderlay()
	}
	if after := a.observe(); !cmp.Equal(before.Ports[c.port], after.Ports[c.port]) || len(after.Remains) > 0 {
		t.Errorf("before %+v, after %+v", before.Ports[c.port], after)
	}
	if r := <-done; r.err != nil || !containsAll(r.out, count+" received", " 0% packet loss") {
		t.Errorf("%v\n%s", r.err, r.out)
	}
}
