package routing_test

import (
	"context"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// start gives every router its rendered configuration and starts it.
func start(t *testing.T, l *daemons.Lab) {
	t.Helper()
	for i := range l.Slice.Nodes {
		n := &l.Slice.Nodes[i]
		if n.Kind != slice.Router {
			continue
		}
		r, err := routing.NewRenderer(l.Slice).Render(n)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(n.Name, r.Files)
		l.Start(n.Name, r.Command)
	}
}

// converge waits for the network to converge and gives how long it took.
func converge(t *testing.T, l *daemons.Lab, up func(string) bool, timeout time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	begin := time.Now()
	v, err := daemons.Await{Slice: l.Slice, PIDs: l.PIDs, Up: up}.Converged(ctx)
	if err != nil {
		t.Fatalf("%v\n%v", err, v)
	}
	if v.Pairs == 0 {
		t.Fatal("nothing was judged")
	}
	t.Logf("converged after %v: %d routers, %d pairs", time.Since(begin).Round(time.Millisecond), v.Routers,
		v.Pairs)
	return time.Since(begin)
}

func TestRoutersConverge(t *testing.T) {
	for _, c := range []struct {
		name   string
		slice  *slice.Slice
		within time.Duration // a bound on a busy machine; most take seconds
	}{
		{"ospf on FRR", square(allFRR, slice.OSPF), time.Minute},
		{"ospf on BIRD", square(allBIRD, slice.OSPF), time.Minute},
		{"ospf on both", square(mixed, slice.OSPF), time.Minute},
		{"isis on FRR", square(allFRR, slice.ISIS), time.Minute},
		{"rip on FRR", square(allFRR, slice.RIP), time.Minute},
		{"rip on BIRD", square(allBIRD, slice.RIP), time.Minute},
		{"rip on both", square(mixed, slice.RIP), time.Minute},
		{"bgp on FRR", systems(allFRR), time.Minute},
		{"bgp on BIRD", systems(allBIRD), time.Minute},
		{"bgp on both", systems(mixed), time.Minute},
		{"areas and a LAN, ospf on FRR", office(slice.FRR, slice.OSPF), time.Minute},
		{"areas and a LAN, ospf on BIRD", office(slice.BIRD, slice.OSPF), time.Minute},
		{"a LAN and a small MTU, isis on FRR", office(slice.FRR, slice.ISIS), time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.LeakCheck(t)
			l := daemons.New(t, c.slice)
			start(t, l)
			converge(t, l, nil, c.within)
		})
	}
}
