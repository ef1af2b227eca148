package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

func TestPortsInNamespacesOfSliversAreTheirLegs(t *testing.T) {
	id := func(node string) sliver.ID { return sliver.ID{Slice: 7, Node: node} }
	s := newSnapshot()
	s.addNetwork(wire.State{Ports: map[string]wire.PortState{
		"s7p1": {PID: 100, Index: 51, Inner: 2},
		"s7p2": {PID: 101, Index: 52, Inner: 2},
		"s7p3": {PID: 101, Index: 53, Inner: 3},
		"s7p4": {PID: 102, Index: 54, Inner: 2},
		"s7p5": {PID: 999, Index: 55, Inner: 2},               // of no sliver
		"s7p6": {PID: 102, Index: 56, Inner: 3, Tunnel: true}, // a proxy port
	}}, map[int]sliver.ID{100: id("h1"), 101: id("h2"), 102: id("h3")})
	want := map[sliver.ID]map[int]int{id("h1"): {2: 51}, id("h2"): {2: 52, 3: 53}, id("h3"): {2: 54}}
	if diff := cmp.Diff(want, s.Legs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestConnectionsWithTheOutsideSayWhyTheyHaveNoIPv6(t *testing.T) {
	s := newSnapshot()
	s.addOutside([]outside.Node{
		{Owner: "7/a", Digest: "d", NoIPv6: "no route"}, {Owner: "7/b", Digest: "d"}, {Owner: "of somebody else"},
	})
	want := map[sliver.ID]string{{Slice: 7, Node: "a"}: "no route", {Slice: 7, Node: "b"}: ""}
	if diff := cmp.Diff(want, s.NoIPv6); diff != "" || len(s.Resources) != 2 {
		t.Errorf("%d resources, -want +got:\n%s", len(s.Resources), diff)
	}
}
