package wire_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

func (l *lab) sw(name string) string {
	l.Helper()
	l.must(l.AddSwitch(l.ctx, wire.Switch{Name: name, Slice: 7, Owner: "lab/" + name, Digest: "d"}))
	return name
}

// lan attaches nodes n1, n2, ... to a switch and gives their ports.
func (l *lab) lan(sw string, nodes int) []string {
	l.Helper()
	var ports []string
	for i := 1; i <= nodes; i++ {
		p := l.port(fmt.Sprintf("n%d", i), nil, fmt.Sprintf("198.51.100.%d/24", i),
			fmt.Sprintf("2001:db8:1::%x/64", i))
		l.must(l.Attach(l.ctx, p, sw))
		ports = append(ports, p)
	}
	return ports
}

func TestLANReachesEveryone(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 3)
	for _, to := range []string{"198.51.100.2", "198.51.100.3", "2001:db8:1::3"} {
		l.ping("n1", to)
	}
	state := l.observe()
	for _, p := range ports {
		if s := state.Ports[p]; s.Switch != "s7b1" || s.Peer != "" {
			t.Errorf("port %s: %+v", p, s)
		}
	}
	l.must(l.Detach(l.ctx, ports[1]))
	l.noPing("n1", "198.51.100.2")
	l.ping("n1", "198.51.100.3")
}

// A switch that has learnt where a node is does not send the node's frames to others.
func TestLANLearns(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 3)
	l.ping("n1", "198.51.100.2")
	before, err := l.Counters(l.ctx)
	l.must(err)
	if out, err := l.exec("n1", "ping", "-q", "-c50", "-i0.002", "198.51.100.2"); err != nil {
		t.Fatal(out)
	}
	after, err := l.Counters(l.ctx)
	l.must(err)
	to := func(port string) uint64 { return after[port].ToNode.Frames - before[port].ToNode.Frames }
	if to(ports[1]) < 50 || to(ports[2]) > 10 {
		t.Errorf("of 50 frames for n2, %d came to n2 and %d to n3", to(ports[1]), to(ports[2]))
	}
	if from := after[ports[0]].FromNode.Frames - before[ports[0]].FromNode.Frames; from < 50 {
		t.Errorf("of 50 frames from n1, %d were counted", from)
	}
}

func TestPortMovesBetweenLinkAndLAN(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 2)
	l.ping("n1", "198.51.100.2")
	l.must(l.Join(l.ctx, ports[0], ports[1]))
	l.ping("n1", "198.51.100.2")
	if s := l.observe().Ports[ports[0]]; s.Peer != ports[1] || s.Switch != "" {
		t.Errorf("after Join: %+v", s)
	}
	for _, p := range ports {
		l.must(l.Attach(l.ctx, p, "s7b1"))
	}
	l.ping("n1", "198.51.100.2")
	if s := l.observe().Ports[ports[0]]; s.Peer != "" || s.Switch != "s7b1" {
		t.Errorf("after Attach: %+v", s)
	}
}

func (l *lab) cable(a, b string) (endA, endB string) {
	l.Helper()
	l.ports += 2
	c := wire.Cable{Slice: 7, Owner: "lab/cable", Digest: "d", MTU: 1500}
	c.Ends[0] = wire.CableEnd{Name: fmt.Sprintf("s7p%d", l.ports-1), Switch: a}
	c.Ends[1] = wire.CableEnd{Name: fmt.Sprintf("s7p%d", l.ports), Switch: b}
	l.must(l.AddCable(l.ctx, c))
	l.must(l.AddCable(l.ctx, c)) // is there: nothing changes
	return c.Ends[0].Name, c.Ends[1].Name
}

func TestCableJoinsSwitches(t *testing.T) {
	l := newLab(t)
	l.sw("s7b1")
	l.sw("s7b2")
	ports := l.lan("s7b1", 2)
	l.must(l.Attach(l.ctx, ports[1], "s7b2"))
	l.noPing("n1", "198.51.100.2")
	a, b := l.cable("s7b1", "s7b2")
	l.ping("n1", "198.51.100.2")
	state := l.observe()
	if state.Cables[a].Switch != "s7b1" || state.Cables[b].Switch != "s7b2" || len(state.Remains) > 0 {
		t.Errorf("%+v", state)
	}
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 1e6}))
	l.must(l.Shape(l.ctx, a, wire.ToNode, slice.Shape{Rate: 2e6}))
	state = l.observe()
	if state.Cables[a].FromNode.Rate != 1e6 || state.Cables[b].FromNode.Rate != 2e6 {
		t.Errorf("%+v", state.Cables)
	}
	l.ping("n1", "198.51.100.2")
	l.must(l.SetUp(l.ctx, a, false))
	l.noPing("n1", "198.51.100.2")
	l.must(l.DeletePorts(l.ctx, b))
	if left := l.observe().Cables; len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestSwitchIsFull(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 1,024 ports")
	}
	l := newLab(t)
	l.sw("s7b1")
	l.sw("s7b2")
	c := wire.Cable{Slice: 7, MTU: 1500}
	var err error
	made := 0
	for ; made < 1024 && err == nil; made++ {
		c.Ends[0] = wire.CableEnd{Name: fmt.Sprintf("s7p%d", 2*made), Switch: "s7b1"}
		c.Ends[1] = wire.CableEnd{Name: fmt.Sprintf("s7p%d", 2*made+1), Switch: "s7b2"}
		err = l.AddCable(l.ctx, c)
	}
	if !errors.Is(err, wire.ErrSwitchFull) || made != 1024 {
		t.Errorf("port %d: %v", made, err)
	}
	if remains := l.observe().Remains; len(remains) > 0 {
		t.Errorf("not undone: %v", remains)
	}
}
