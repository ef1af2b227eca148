package routing

import (
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// birdOSPF writes OSPFv2 or OSPFv3. BIRD holds back a router's second LSA for 5 s (RFC 2328, MinLSInterval) and
// has no option to change that.
func birdOSPF(t *text, v view, ipv6 bool) {
	channel, suffix := family(ipv6)
	version := "v2"
	if ipv6 {
		version = "v3"
	}
	ports := map[string][]port{}
	for _, p := range v.ports {
		if has(p.Addresses, ipv6) {
			ports[area(p)] = append(ports[area(p)], p)
		}
	}
	loopback := has(v.node.Loopbacks, ipv6)
	if loopback && ports[v.loopbackArea()] == nil {
		ports[v.loopbackArea()] = []port{}
	}
	if len(ports) == 0 {
		return
	}
	birdProtocol(t, "ospf "+version+" ospf"+suffix, func() {
		t.line("ecmp on limit %d;", frrPaths)
		t.block(channel+" {", "};", func() {
			t.line("import all;")
			t.line("export none;")
		})
		for _, a := range slices.SortedFunc(maps.Keys(ports), compareAreas) {
			t.block("area "+a+" {", "};", func() {
				if a == v.loopbackArea() {
					birdOSPFLoopbacks(t, v, ipv6)
				}
				for _, p := range ports[a] {
					birdOSPFPort(t, v, p)
				}
			})
		}
	})
}

// birdOSPFLoopbacks announces the node's own addresses: as stub networks, because OSPFv3 takes no part of an
// interface without a link-local address, as lo is.
func birdOSPFLoopbacks(t *text, v view, ipv6 bool) {
	for _, l := range v.node.Loopbacks {
		if l.Addr().Is6() == ipv6 {
			t.line("stubnet %s { cost 0; };", l.Masked())
		}
	}
}

// birdOSPFPort makes an interface part of OSPF.
func birdOSPFPort(t *text, v view, p port) {
	hello, dead, _ := v.timers(p, slice.OSPF)
	t.block(`interface "`+p.Name+`" {`, "};", func() {
		if p.PointToPoint {
			t.line("type ptp;")
		} else {
			t.line("type broadcast;")
		}
		t.line("cost %d;", cost(p))
		if v.passive(p) {
			t.line("stub yes;")
			return
		}
		t.line("hello %d;", hello)
		t.line("dead %d;", dead)
		t.line("retransmit 2;") // the least that BIRD takes
	})
}
