package routing_test

import (
	"context"
	"testing"
	"time"

	"github.com/pergola-net/pergola/agent/probe"
	"github.com/pergola-net/pergola/agent/probe/lab"
	"github.com/pergola-net/pergola/agent/routing"
	"github.com/pergola-net/pergola/slice"
)

// start gives every router its rendered configuration and starts it.
func start(t *testing.T, l *lab.Lab) {
	t.Helper()
	for i := range l.Slice.Nodes {
		n := &l.Slice.Nodes[i]
		if n.Kind != slice.Router {
			continue
		}
		r, err := routing.Render(l.Slice, n)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(n.Name, r.Files)
		l.Start(n.Name, r.Command)
	}
}

// converge waits for the network to converge and gives how long it took.
func converge(t *testing.T, l *lab.Lab, up func(string) bool, timeout time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	begin := time.Now()
	v, err := probe.Await{Slice: l.Slice, PIDs: l.PIDs, Up: up}.Converged(ctx)
	if err != nil {
		t.Fatalf("%v\n%v", err, v)
	}
	if v.Pairs == 0 {
		t.Fatal("nothing was judged")
	}
	t.Logf("converged after %v: %d routers, %d pairs", time.Since(begin).Round(time.Millisecond), v.Routers, v.Pairs)
	return time.Since(begin)
}

// square is four routers in a ring with one stub LAN.
func square(daemons [4]slice.Daemon, p slice.Protocol) *slice.Slice {
	b := &lab.Topology{}
	for i, name := range []string{"r1", "r2", "r3", "r4"} {
		b.Router(name, daemons[i], p)
	}
	b.Link("r1", "r2")
	b.Link("r2", "r3")
	b.Link("r3", "r4")
	b.Link("r4", "r1")
	return b.Done()
}

var (
	allFRR  = [4]slice.Daemon{slice.FRR, slice.FRR, slice.FRR, slice.FRR}
	allBIRD = [4]slice.Daemon{slice.BIRD, slice.BIRD, slice.BIRD, slice.BIRD}
	mixed   = [4]slice.Daemon{slice.FRR, slice.BIRD, slice.FRR, slice.BIRD}
)

func TestRoutersConverge(t *testing.T) {
	for _, c := range []struct {
		name    string
		daemons [4]slice.Daemon
		proto   slice.Protocol
		within  time.Duration
	}{
		{"ospf on FRR", allFRR, slice.OSPF, 10 * time.Second},
		{"ospf on BIRD", allBIRD, slice.OSPF, 20 * time.Second},
		{"ospf on both", mixed, slice.OSPF, 20 * time.Second},
		{"isis on FRR", allFRR, slice.ISIS, 20 * time.Second},
		{"rip on FRR", allFRR, slice.RIP, 40 * time.Second},
		{"rip on BIRD", allBIRD, slice.RIP, 40 * time.Second},
		{"rip on both", mixed, slice.RIP, 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lab.New(t, square(c.daemons, c.proto))
			start(t, l)
			converge(t, l, nil, c.within)
		})
	}
}
