package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestStormControlIsOfWhatFloods(t *testing.T) {
	const file = `
defaults: {link: {storm_control: 2.5kpps}}
nodes: {a: , b: , c: , s: {kind: switch}, u: {kind: switch}}
links:
  - {name: ab, ends: [a, b]}
  - {name: abc, ends: [a, b, c], storm_control: off}
  - {name: lan, ends: [a, c], lan: true, storm_control: 7}
  - {ends: [a, s]}
  - {ends: [b, u], storm_control: 1Mpps}
`
	s := mustResolve(t, mustParse(t, "t.yaml", []byte(file)), nil)
	for _, c := range []struct {
		name string
		have slice.Tunnel
		want int
	}{
		{"a link of two nodes", s.Link("ab").Tunnel, 0},
		{"switched off", s.Link("abc").Tunnel, slice.NoStormControl},
		{"a LAN of two nodes", s.Link("lan").Tunnel, 7},
		{"a switch, by the defaults", s.Node("s").Tunnel, 2500},
		{"a switch, by its link", s.Node("u").Tunnel, 1_000_000},
	} {
		if c.have.StormControl != c.want {
			t.Errorf("%s: %d frames a second, want %d", c.name, c.have.StormControl, c.want)
		}
	}
}

func TestPlacementHasTheMostSpecificSetting(t *testing.T) {
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
  d: {binds: ["/srv/d:/d"]}
  u: {kind: uplink, host: h1}
links:
  - {name: ab, ends: [a, b]}
  - {name: bc, ends: [b, c], tunnel: egre, dscp: none, mtu: 9000}
  - [c, s]
  - [d, s]
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
		"d": {Labels: lab}, // so has this one something that no other host has
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

func TestWhatOneMachineHasStartsNowhereElse(t *testing.T) {
	for field, want := range map[string]string{
		"binds: " +
			"[/srv/a:/a]": `t.yaml:4:17: "a" has /srv/a of one machine (binds), so it cannot start ` +
			`elsewhere (leave out one of them; `,
		"binds: [/a:/a:ro]": `"a" has /a (to read) of one machine (binds)`,
		"rootfs: /srv/root": `"a" has /srv/root (to read) of one machine (rootfs)`,
		"image: oci:/srv/i": `"a" has /srv/i (to read) of one machine (image)`,
		"host: h1":          `"a" runs on host h1 alone`,
	} {
		_, found := Parse("t.yaml", []byte("nodes:\n  a:\n    "+field+"\n    reschedule: always\n"))
		if text := found.Error(); !strings.Contains(text, want) {
			t.Errorf("%s: %s", field, text)
		}
	}
}
