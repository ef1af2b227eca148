package main

import (
	"slices"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestWhatANodeReservedWhileItRanIsShownAndTakenBack(t *testing.T) {
	w, _ := inCluster(t)
	pergola(t, "up").want(t, 0, "", "lab is up")
	pergola(t, "reserve", "ls").want(t, 0,
		`(?s)^HOST +RESOURCE +CAPACITY +RESERVED +LEFT\nh1 +cores +4 +0 +4\n`, "")
	spec, record, err := w.store.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	next := *spec
	next.Nodes = slices.Clone(next.Nodes)
	a := next.Node("a")
	tcp := func(port uint16) slice.HostPort { return slice.HostPort{Protocol: slice.TCP, Port: port} }
	a.Claims, a.BoundPorts = []slice.HostPort{tcp(8001), tcp(8002)}, []slice.HostPort{tcp(8003)}
	a.Interfaces = slices.Clone(a.Interfaces)
	a.Interfaces[0].Claim = 5e6
	if err := w.store.PutSlice(t.Context(), &next, record.Generation); err != nil {
		t.Fatal(err)
	}
	pergola(t, "reserve", "ls", "h1").want(t, 0,
		`(?m)^h1 +lab +a +eth1 5 Mbit/s\+, tcp/8001\+, tcp/8002\+, tcp/8003\*$`, "")
	pergola(t, "reserve", "rm", "a", "tcp/8001", "tcp/8009").want(t, 1, "", "a has not reserved port tcp/8009")
	pergola(t, "reserve", "rm", "a", "tcp/8003").want(t, 1, "",
		"a process of a has bound port tcp/8003: the port is "+
			"released when the process closes it")
	pergola(t, "reserve", "rm", "a", "eth2").want(t, 1, "", "a has not reserved bandwidth for eth2")
	pergola(t, "reserve", "rm", "lab/a", "tcp/8001", "eth1").want(t, 0, "", "lab/a: released tcp/8001, eth1")
	pergola(t, "reserve", "ls", "h1", "--json").want(t, 0,
		`(?s)"ports": \[\s*"tcp/8002",\s*"tcp/8003"\s*\],\s*"claims": \[\s*"tcp/8002"\s*\],`+
			`\s*"bound": \[\s*"tcp/8003"`, "")
	pergola(t, "reserve", "rm", "a").want(t, 2, "", "is missing")
	pergola(t, "reserve", "rm", "aa", "tcp/8002").want(t, 1, "", "did you mean a")
}
