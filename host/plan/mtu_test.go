package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func TestPathMTUsAreNoLongerThanBothHostsReport(t *testing.T) {
	host := func(name string, mtu int, paths map[string]int) hosts.Host {
		a := plantest.Hosts[name]
		u := []hosts.Underlay{{MTU: 576}, {MTU: mtu, Addresses: []netip.Prefix{netip.PrefixFrom(a, 24)}}}
		return hosts.Host{Name: name, Address: a, Underlays: u, Paths: paths}
	}
	all := []hosts.Host{
		host("A", 9000, map[string]int{"C": 1400}), host("B", 1500, nil),
		host("C", 9000, map[string]int{"A": 1300, "B": 1200}),
	}
	all = append(all, hosts.Host{Name: "unreachable"})
	for self, want := range map[string]map[string]int{
		"A": {"B": 1500, "C": 1300}, "B": {"A": 1500, "C": 1200}, "unreachable": nil, "nobody": nil,
	} {
		if diff := cmp.Diff(want, PathMTUs(self, all)); diff != "" {
			t.Errorf("of %s (-want +have):\n%s", self, diff)
		}
	}
}

func TestAnMTUThatDoesNotFitAnyMoreIsTrouble(t *testing.T) {
	made := func(fixed bool, mtu int) *slice.Slice {
		node := func(name string) slice.Node {
			return slice.Node{Name: name, Kind: slice.Host, Interfaces: []slice.Interface{{
				Name: "eth1", MTU: mtu, FixedMTU: fixed,
			}}}
		}
		s := &slice.Slice{Name: "lab", ID: 1, Nodes: []slice.Node{node("x"), node("y")}, Links: []slice.Link{
			{Name: "x--y", Ends: []slice.End{{Node: "x", Interface: "eth1"}, {Node: "y", Interface: "eth1"}}},
		}}
		s = plantest.Spread(s, map[string]string{"x": "A", "y": "B"})
		s.Links[0].Tunnel.Kind = slice.VXLAN
		return s
	}
	at := placeOf("A")
	at.PathMTUs = map[string]int{"B": 1500, "C": 1300}
	const want = "link x--y: x:eth1 has mtu 8000, which does not fit any more: " +
		"to host B packets of 1500 bytes pass, of which the tunnel takes 50: write mtu: 1450, or no mtu"
	for _, c := range []struct {
		s    *slice.Slice
		want []string
	}{{made(true, 8000), []string{want}}, {made(true, 1450), nil}, {made(false, 8000), nil}} {
		if diff := cmp.Diff(c.want, NewShare(c.s, at).Misfits(c.s)); diff != "" {
			t.Errorf("(-want +have):\n%s", diff)
		}
	}
}
