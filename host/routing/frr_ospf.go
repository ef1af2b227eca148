package routing

import "github.com/pergola-net/pergola/model/slice"

// frrOSPF writes the OSPF instances. All timers serve a network that starts as a whole: FRR's defaults hold back a
// router's second LSA for 5 s and its second SPF run for 0.2 to 10 s.
func frrOSPF(t *text, v view) {
	if v.speaks(false) {
		frrSection(t, "router ospf", func() {
			t.line("ospf router-id %s", v.node.Routing.RouterID)
			t.line("log-adjacency-changes")
			t.line("timers throttle spf 10 100 1000")
			t.line("timers throttle lsa all 0")
			t.line("timers lsa min-arrival 0")
			t.line("maximum-paths %d", frrPaths)
			// Also where nothing is said of links: ospfd drops all adjacencies when this changes.
			t.line("capability opaque")
			frrTE(t, v)
		})
	}
	if v.speaks(true) {
		frrSection(t, "router ospf6", func() {
			t.line("ospf6 router-id %s", v.node.Routing.RouterID)
			t.line("log-adjacency-changes")
			t.line("timers throttle spf 10 100 1000")
			t.line("timers lsa min-arrival 0")
			t.line("maximum-paths %d", frrPaths)
		})
	}
}

// frrOSPFLoopback announces the node's own addresses.
func frrOSPFLoopback(t *text, v view, v4, v6 bool) {
	if v4 {
		t.line("ip ospf area %s", v.loopbackArea())
	}
	if v6 {
		t.line("ipv6 ospf6 area %s", v.loopbackArea())
	}
}

// frrOSPFPort makes an interface part of OSPFv2 and OSPFv3, by its addresses. The area comes last: with it the
// interface begins to speak, and its first hello must carry the right intervals.
func frrOSPFPort(t *text, v view, p port) {
	hello, dead, fast := v.timers(p, slice.OSPF)
	if has(p.Addresses, false) {
		frrOSPFCommon(t, v, p, "ip ospf")
		if fast {
			t.line("ip ospf dead-interval minimal hello-multiplier 4")
		} else {
			t.line("ip ospf hello-interval %d", hello)
			t.line("ip ospf dead-interval %d", dead)
		}
		t.line("ip ospf area %s", area(p))
	}
	if has(p.Addresses, true) {
		frrOSPFCommon(t, v, p, "ipv6 ospf6")
		if fast { // ospf6d has no hellos below a second
			hello, dead = 1, 2
		}
		t.line("ipv6 ospf6 hello-interval %d", hello)
		t.line("ipv6 ospf6 dead-interval %d", dead)
		t.line("ipv6 ospf6 area %s", area(p))
	}
}

// frrOSPFCommon writes the lines of an interface that OSPFv2 and OSPFv3 share.
func frrOSPFCommon(t *text, v view, p port, prefix string) {
	if p.PointToPoint {
		t.line("%s network point-to-point", prefix)
	}
	t.line("%s cost %d", prefix, cost(p))
	// One lost or too early database description packet costs this long.
	t.line("%s retransmit-interval 1", prefix)
	if v.passive(p) {
		t.line("%s passive", prefix)
	}
}
