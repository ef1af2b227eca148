package wire_test

import (
	"fmt"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func policed(rate float64) slice.Shape {
	return slice.Shape{Police: slice.Policer{Rate: unit.Rate(rate)}}
}

// wantPoliced wants frames from or to a port's node to have been dropped by a policer, and counted.
func (l *lab) wantPoliced(port string) {
	l.Helper()
	if n := l.traffic(port).Dropped["policed"]; n == 0 {
		l.Errorf("no frame at port %s was counted as dropped: %v", port, l.traffic(port).Dropped)
	}
}

func TestPolicerOfJoinedPorts(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	shape := policed(10e6)
	l.must(l.Shape(l.ctx, a, wire.FromNode, shape))
	l.wantRate("a", "192.0.2.1", b, 10e6)
	l.wantPoliced(a)
	l.wantFaster("b", "192.0.2.0", a, 30e6) // the other direction is free
	state := l.observe()
	ends := state.Ports
	if !ends[a].FromNode.Equal(shape) || !ends[b].ToNode.Equal(shape) || !ends[a].ToNode.IsZero() {
		t.Errorf("observed %+v", state.Ports)
	}
	l.wantSegments("a", 1)
	l.must(l.Shape(l.ctx, b, wire.ToNode, policed(20e6)))
	l.wantRate("a", "192.0.2.1", b, 20e6)
	l.reopen()
	l.wantRate("a", "192.0.2.1", b, 20e6)
	both := slice.Shape{Rate: 5e6, Queue: 50, Police: slice.Policer{Rate: 20e6, Burst: 20000}}
	l.must(l.Shape(l.ctx, a, wire.FromNode, both)) // what passes is queued
	l.wantRate("a", "192.0.2.1", b, 5e6)
	l.wantPoliced(a)
	if q := l.observe().Ports[a].FromNode; !q.Equal(both) {
		t.Errorf("observed %+v", q)
	}
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{}))
	l.wantFaster("a", "192.0.2.1", b, 30e6)
	if q := l.observe().Ports[a].FromNode; !q.IsZero() {
		t.Errorf("not removed: %+v", q)
	}
	l.wantSegments("a", 65535)
}

// What a switch sends is policed where it enters the data path: at a queue device, which has no qdisc.
func TestPolicerOnALAN(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 3)
	l.ping("n1", "198.51.100.2")
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, policed(10e6)))
	l.wantRate("n1", "198.51.100.2", ports[1], 10e6)
	l.wantPoliced(ports[0])
	l.wantFaster("n2", "198.51.100.1", ports[0], 30e6)
	l.must(l.Shape(l.ctx, ports[0], wire.ToNode, policed(5e6)))
	l.wantRate("n2", "198.51.100.1", ports[0], 5e6)
	l.wantRate("n1", "198.51.100.2", ports[1], 10e6)
	state := l.observe()
	p := state.Ports[ports[0]]
	both := p.FromNode.Equal(policed(10e6)) && p.ToNode.Equal(policed(5e6))
	if p.Switch != "s7b1" || !both || len(state.Remains) > 0 {
		t.Errorf("observed %+v, remains %v", p, state.Remains)
	}
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{}))
	l.must(l.Shape(l.ctx, ports[0], wire.ToNode, slice.Shape{}))
	l.wantFaster("n1", "198.51.100.2", ports[1], 30e6)
	l.wantFaster("n2", "198.51.100.1", ports[0], 30e6)
}

// wantSegments wants super-frames of the node's interface to have so many segments at most.
func (l *lab) wantSegments(node string, segments int) {
	l.Helper()
	l.wantIn(node, "ip -d link show eth0", fmt.Sprintf("gso_max_segs %d ", segments))
}
