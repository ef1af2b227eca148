package serve

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe/sessions"
	"github.com/pergola-net/pergola/model/slice"
)

func TestSessionsOverLinksThatAreDownAreNotWaitedFor(t *testing.T) {
	n := &slice.Node{Name: "edge", Interfaces: []slice.Interface{
		{Name: "eth1", Link: "cut", Addresses: []netip.Prefix{netip.MustParsePrefix("172.31.3.0/31")}},
		{Name: "eth2", Link: "whole", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/31")}},
	}}
	w := &plan.Input{Spec: &slice.Slice{Nodes: []slice.Node{*n}}}
	w.Overrides.Down = map[string]bool{"cut": true}
	for neighbour, want := range map[string]bool{
		"172.31.3.1": true, "10.0.0.1": false, "10.255.0.1": false, "a name": false,
	} {
		if got := isCut(w, n, sessions.Session{Protocol: "bgp", Neighbour: neighbour}); got != want {
			t.Errorf("%s: cut is %v, want %v", neighbour, got, want)
		}
	}
}
