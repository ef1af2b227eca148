package routing

import (
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/model/slice"
)

// BGP sessions, in seconds: a neighbour that ends without a NOTIFICATION is noticed after bgpHold.
const (
	bgpKeepalive = 3
	bgpHold      = 9
	bgpRetry     = 1
)

// frrBGP writes the BGP instance. Interior and exterior routes are accepted and sent without a policy, as they
// were before RFC 8212: a lab begins with routes.
func frrBGP(t *text, v view) {
	bgp := v.node.Routing.BGP
	if bgp == nil {
		return
	}
	frrInside(t, v)
	frrSection(t, fmt.Sprintf("router bgp %d", bgp.AS), func() {
		t.line("bgp router-id %s", v.node.Routing.RouterID)
		t.line("no bgp ebgp-requires-policy")
		t.line("no bgp default ipv4-unicast")
		t.line("no bgp network import-check")
		t.line("bgp bestpath as-path multipath-relax")
		t.line("timers bgp %d %d", bgpKeepalive, bgpHold)
		for _, n := range bgp.Neighbors {
			frrNeighbor(t, n)
		}
		frrFamily(t, v, false)
		frrFamily(t, v, true)
	})
}

// frrInside lists the prefixes of AS-mates that a border router announces outside because its interior protocol
// knows them (see view.inside).
func frrInside(t *text, v view) {
	for _, ipv6 := range []bool{false, true} {
		inside := v.inside(ipv6)
		if len(inside) == 0 {
			continue
		}
		family, name := "ip", insideName(ipv6)
		if ipv6 {
			family = "ipv6"
		}
		t.line("!")
		for i, p := range inside {
			t.line("%s prefix-list %s seq %d permit %s", family, name, 5*(i+1), p)
		}
		frrSection(t, "route-map "+name+" permit 10", func() {
			t.line("match %s address prefix-list %s", family, name)
		})
	}
}

func insideName(ipv6 bool) string {
	if ipv6 {
		return "inside6"
	}
	return "inside4"
}

// frrRedistributed names an interior protocol as bgpd does.
func frrRedistributed(p slice.Protocol, ipv6 bool) string {
	switch {
	case p == slice.OSPF && ipv6:
		return "ospf6"
	case p == slice.RIP && ipv6:
		return "ripng"
	default:
		return string(p)
	}
}

// frrNeighbor writes a session.
func frrNeighbor(t *text, n slice.BGPNeighbor) {
	who := "neighbor " + n.Address.String()
	t.line("%s remote-as %d", who, n.AS)
	if n.Node != "" {
		t.line("%s description %s", who, n.Node)
	}
	t.line("%s timers connect %d", who, bgpRetry)
	t.line("%s advertisement-interval 0", who)
	if n.Source.IsValid() {
		t.line("%s update-source %s", who, n.Source)
	}
}

// frrFamily writes the section of one address family. A session carries the family of its own addresses.
func frrFamily(t *text, v view, ipv6 bool) {
	bgp := v.node.Routing.BGP
	name := "ipv4"
	if ipv6 {
		name = "ipv6"
	}
	t.block("address-family "+name+" unicast", "exit-address-family", func() {
		for _, p := range bgp.Networks {
			if p.Addr().Is6() == ipv6 {
				t.line("network %s", p.Masked())
			}
		}
		if len(v.inside(ipv6)) > 0 {
			for _, p := range v.interior() {
				t.line("redistribute %s route-map %s", frrRedistributed(p, ipv6), insideName(ipv6))
			}
		}
		for _, n := range bgp.Neighbors {
			if n.Address.Is6() != ipv6 {
				continue
			}
			who := "neighbor " + n.Address.String()
			t.line("%s activate", who)
			if n.Client {
				t.line("%s route-reflector-client", who)
			}
			if n.NextHopSelf {
				t.line("%s next-hop-self", who)
			}
		}
		if speaksBGP(bgp, ipv6) {
			t.line("maximum-paths %d", frrPaths)
			t.line("maximum-paths ibgp %d", frrPaths)
		}
	})
}

// speaksBGP reports whether the node has anything to say in the family.
func speaksBGP(bgp *slice.BGPNode, ipv6 bool) bool {
	for _, n := range bgp.Neighbors {
		if n.Address.Is6() == ipv6 {
			return true
		}
	}
	return len(ofFamily(bgp.Networks, ipv6)) > 0
}

// ofFamily picks the prefixes of a family.
func ofFamily(all []netip.Prefix, ipv6 bool) []netip.Prefix {
	var some []netip.Prefix
	for _, p := range all {
		if p.Addr().Is6() == ipv6 {
			some = append(some, p.Masked())
		}
	}
	return some
}
