package routing

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// birdBGP writes the sessions of a family: a session carries the family of its own addresses.
func birdBGP(t *text, v view, ipv6 bool) {
	bgp := v.node.Routing.BGP
	channel, suffix := family(ipv6)
	networks := ofFamily(bgp.Networks, ipv6)
	if len(networks) > 0 {
		// A prefix that no interface has is originated all the same, as FRR does without its import check.
		birdProtocol(t, "static originated"+suffix, func() {
			t.block(channel+" {", "};", func() { t.line("preference 1;") })
			for _, p := range networks {
				t.line("route %s unreachable;", p)
			}
		})
	}
	export := func(prefixes []netip.Prefix) string {
		if len(prefixes) == 0 {
			return "source = RTS_BGP"
		}
		return "source = RTS_BGP || net ~ " + birdSet(prefixes)
	}
	outside := slices.Concat(networks, v.inside(ipv6))
	number := 0
	for _, n := range bgp.Neighbors {
		if n.Address.Is6() != ipv6 {
			continue
		}
		number++
		birdProtocol(t, fmt.Sprintf("bgp bgp%s_%d", suffix, number), func() {
			if n.AS == bgp.AS {
				birdNeighbor(t, bgp, n, channel, export(networks))
			} else {
				birdNeighbor(t, bgp, n, channel, export(outside))
			}
		})
	}
}

// birdNeighbor writes one session.
func birdNeighbor(t *text, bgp *slice.BGPNode, n slice.BGPNeighbor, channel, export string) {
	if n.Node != "" {
		t.line("description %q;", n.Node)
	}
	if n.Source.IsValid() {
		t.line("local %s as %d;", n.Source, bgp.AS)
	} else {
		t.line("local as %d;", bgp.AS)
	}
	t.line("neighbor %s as %d;", n.Address, n.AS)
	if n.Client {
		t.line("rr client;")
	}
	t.line("connect delay time %d;", bgpRetry)
	t.line("connect retry time %d;", bgpRetry)
	t.line("error wait time 1, 10;")
	t.line("keepalive time %d;", bgpKeepalive)
	t.line("hold time %d;", bgpHold)
	t.block(channel+" {", "};", func() {
		t.line("import all;")
		t.line("export where %s;", export)
		if n.NextHopSelf {
			t.line("next hop self ebgp;")
		}
	})
}
