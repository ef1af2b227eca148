package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func (l *lab) reinject(port string, on bool) {
	l.Helper()
	l.must(l.Reinject(l.ctx, port, on))
	state := l.observe()
	if p := state.Ports[port]; p.Reinjected != on || len(state.Remains) > 0 {
		l.Errorf("%s reinjects: want %v, observed %+v, remains %v", port, on, p, state.Remains)
	}
}

func TestFramesOfJoinedPortsAreReinjected(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 10e6}))
	l.reinject(a, true)
	l.reinject(b, true) // is so already
	l.ping("a", "192.0.2.1")
	l.ping("a", "2001:db8::1")
	l.wantRate("a", "192.0.2.1", b, 10e6)
	l.must(l.Shape(l.ctx, b, wire.FromNode, slice.Shape{Rate: 20e6}))
	l.wantRate("b", "192.0.2.0", a, 20e6)
	state := l.observe()
	pa, pb := state.Ports[a], state.Ports[b]
	if pa.Peer != b || pb.Peer != a || pa.FromNode.Rate != 10e6 || pb.FromNode.Rate != 20e6 ||
		pa.ToNode.Rate != 20e6 ||
		pb.ToNode.Rate != 10e6 {
		t.Errorf("observed %+v and %+v", pa, pb)
	}
	l.must(l.Shape(l.ctx, b, wire.ToNode, slice.Shape{Rate: 5e6}))
	l.wantRate("a", "192.0.2.1", b, 5e6)
	l.reopen()
	l.wantRate("a", "192.0.2.1", b, 5e6)

	// Undone, the shapes stay.
	l.reinject(b, false)
	l.wantRate("a", "192.0.2.1", b, 5e6)
	l.wantRate("b", "192.0.2.0", a, 20e6)
	l.reinject(a, false)
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{}))
	l.must(l.Shape(l.ctx, b, wire.FromNode, slice.Shape{}))
	l.wantFaster("a", "192.0.2.1", b, 30e6)

	// A wire that goes takes the pair along.
	l.reinject(a, true)
	l.must(l.Unjoin(l.ctx, a))
	l.must(l.Unjoin(l.ctx, b))
	l.noPing("a", "192.0.2.1")
	state = l.observe()
	if p := state.Ports[b]; p.Peer != "" || p.Reinjected || len(state.Remains) > 0 {
		t.Errorf("observed %+v, remains %v", p, state.Remains)
	}
	l.must(l.Join(l.ctx, a, b))
	l.ping("a", "192.0.2.1")
}

// What is too long for the receiver is found out behind the queue, and is counted with the receiver's port.
func TestDropsBehindAQueueAreCounted(t *testing.T) {
	l := newLab(t)
	a := l.port("a", func(p *wire.Port) { p.MTU = 9000 })
	b := l.port("b", nil)
	l.must(l.Join(l.ctx, a, b))
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 10e6}))
	l.reinject(a, true)
	l.carrier("a")
	l.tap("a").send(ethernet(everyone, mac(1), "88b5", 9000))
	testkit.Eventually(t, func() error {
		traffic, err := l.Counters(l.ctx)
		if err == nil && traffic[b].Dropped["too big"] != 1 {
			err = fmt.Errorf("dropped at %s: %v", b, traffic[b].Dropped)
		}
		return err
	}, 5*time.Second, "the frame to be counted")
}

func TestFramesOfASwitchAreReinjected(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 3)
	l.must(l.Shape(l.ctx, ports[0], wire.ToNode, slice.Shape{Rate: 5e6}))
	l.reinject(ports[0], true)
	l.ping("n1", "198.51.100.2")
	l.ping("n3", "198.51.100.1")
	l.wantRate("n2", "198.51.100.1", ports[0], 5e6)
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{Rate: 10e6}))
	l.wantRate("n1", "198.51.100.2", ports[1], 10e6)
	p := l.observe().Ports[ports[0]]
	if p.Switch != "s7b1" || p.FromNode.Rate != 10e6 || p.ToNode.Rate != 5e6 {
		t.Errorf("observed %+v", p)
	}
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{}))
	l.reinject(ports[0], true) // still
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{Rate: 10e6}))

	// The queue device stays: it shapes what the node sends.
	l.must(l.Reinject(l.ctx, ports[0], false))
	p = l.observe().Ports[ports[0]]
	if p.Switch != "s7b1" || p.FromNode.Rate != 10e6 || p.ToNode.Rate != 5e6 {
		t.Errorf("observed %+v", p)
	}
	l.wantRate("n2", "198.51.100.1", ports[0], 5e6)
	l.wantRate("n1", "198.51.100.2", ports[1], 10e6)
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{}))
	l.reinject(ports[0], true)
	l.reinject(ports[0], false)
	l.ping("n1", "198.51.100.2")
	l.must(l.Detach(l.ctx, ports[0]))
	l.noPing("n1", "198.51.100.2")
	if state := l.observe(); len(state.Remains) > 0 {
		t.Errorf("remains %v", state.Remains)
	}
}

func TestNodeThatDiesTakesThePairAlong(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 10e6}))
	l.reinject(a, true)
	l.kill(l.node("b"))
	testkit.Eventually(t, func() error {
		if p, there := l.observe().Ports[b]; there {
			return fmt.Errorf("%s is there: %+v", b, p)
		}
		return nil
	}, 5*time.Second, "the port to go with its node")
	state := l.observe()
	l.must(l.DeletePorts(l.ctx, state.Remains...))
	state = l.observe()
	if p := state.Ports[a]; p.Peer != "" || p.Reinjected || len(state.Remains) > 0 {
		t.Errorf("observed %+v, remains %v", p, state.Remains)
	}
}
