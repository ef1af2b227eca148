package routing

import (
	"fmt"

	"github.com/pergola-net/pergola/slice"
)

// birdBGP writes the sessions of a family: a session carries the family of its own addresses.
func birdBGP(t *text, bgp *slice.BGPNode, ipv6 bool) {
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
	export := "source = RTS_BGP"
	if len(networks) > 0 {
		export += " || net ~ " + birdSet(networks)
	}
	number := 0
	for _, n := range bgp.Neighbors {
		if n.Address.Is6() != ipv6 {
			continue
		}
		number++
		birdProtocol(t, fmt.Sprintf("bgp bgp%s_%d", suffix, number), func() {
			birdNeighbor(t, bgp, n, channel, export)
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
