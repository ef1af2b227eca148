package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/slice"
)

func TestPlacementIsTheLastWord(t *testing.T) {
	const file = `
placement: pack
defaults:
  node: {reschedule: always, host_labels: {site: lab}}
  link: {tunnel: vxlan, dscp: copy}
groups: {far: {host: h3, members: [b]}}
nodes:
  a: {host_labels: {rack: "7"}}
  b:
  c: {reschedule: never}
  s: {kind: switch}
  u: {kind: uplink, host: h1}
links:
  - {name: ab, ends: [a, b]}
  - {name: bc, ends: [b, c], tunnel: egre, dscp: none, mtu: 9000}
  - [c, s]
  - [s, "u:lab0"]
`
	s := mustResolve(t, mustParse(t, "t.yaml", []byte(file)), nil)
	if s.Strategy != slice.Pack {
		t.Errorf("strategy %q", s.Strategy)
	}
	lab := map[string]string{"site": "lab"}
	for name, want := range map[string]slice.Placement{
		"a": {Labels: map[string]string{"site": "lab", "rack": "7"}, Reschedule: slice.RescheduleAlways},
		"b": {Host: "h3", Labels: lab}, // it cannot start elsewhere, whatever the defaults want
		"c": {Labels: lab},
		"s": {},
		"u": {Host: "h1"},
	} {
		if diff := cmp.Diff(want, s.Node(name).Placement); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	copied := slice.Tunnel{Kind: slice.VXLAN, DSCP: true}
	if got := s.Link("ab").Tunnel; got != copied {
		t.Errorf("ab: tunnel %+v", got)
	}
	if got := s.Link("bc").Tunnel; got != (slice.Tunnel{}) {
		t.Errorf("bc: tunnel %+v", got)
	}
	if got := s.Node("s").Tunnel; got != copied {
		t.Errorf("s: tunnel %+v", got)
	}
	for name, fixed := range map[string]bool{"a": false, "c": true} {
		if i := s.Node(name).Interface("eth1"); i.FixedMTU != fixed {
			t.Errorf("%s:%s has a written MTU: %v, want %v", name, i.Name, i.FixedMTU, fixed)
		}
	}
}
