package probe_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/model/slice"
)

func TestPartsOfHostsAddUpToTheWholeNetwork(t *testing.T) {
	s := grid(4, 3, slice.OSPF)
	tables := converge(s, all)
	whole := probe.Converged(s, tables, nil)
	part := func(host int) probe.Verdict {
		mine := make(map[string]probe.Table)
		for i := range s.Nodes {
			n := &s.Nodes[i]
			if mine[n.Name] = tables[n.Name]; i%3 != host {
				mine[n.Name] = probe.Expected(n)
			}
		}
		return probe.Converged(s, mine, nil)
	}
	sum := func() (v probe.Verdict) {
		v.Converged = true
		for host := range 3 {
			p := part(host)
			v.Converged = v.Converged && p.Converged
			v.Routers += p.Routers
			v.Pairs += p.Pairs
			v.Reached += p.Reached
		}
		return v
	}
	if got := sum(); !got.Converged || got.Routers != whole.Routers || got.Pairs != whole.Pairs ||
		got.Reached != whole.Reached {
		t.Errorf("the parts give %+v, the whole %+v", got, whole)
	}
	tables = maps.Clone(tables)
	lame := tables[s.Nodes[4].Name]
	lame.Routes = lame.Routes[1:]
	tables[s.Nodes[4].Name] = lame
	for host := range 3 {
		if p := part(host); p.Converged != (host != 1) {
			t.Errorf("host %d, when a router of host 1 has lost a route: %+v", host, p)
		}
	}
}

func TestExpectedKnowsNeighboursAsDaemonsNameThem(t *testing.T) {
	n := &slice.Node{Interfaces: []slice.Interface{{
		Name: "eth1", MAC: "02:00:5e:10:00:01",
		Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64")},
	}}}
	got := probe.Expected(n).Interface("eth1").Addresses
	if want := netip.MustParsePrefix("fe80::5eff:fe10:1/64"); len(got) != 2 || !slices.Contains(got, want) {
		t.Errorf("addresses %v, want %v among them", got, want)
	}
}
