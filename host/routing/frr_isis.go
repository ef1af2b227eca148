package routing

import "github.com/pergola-net/pergola/model/slice"

// frrISIS writes the IS-IS instance.
func frrISIS(t *text, v view) {
	isis := v.node.Routing.ISIS
	if isis == nil {
		return
	}
	level := map[int]string{1: "level-1", 2: "level-2-only", 12: "level-1-2"}[isis.Level]
	frrSection(t, "router isis "+isisTag, func() {
		if mtu := v.lspMTU; mtu > 0 {
			t.line("lsp-mtu %d", mtu)
		}
		t.line("net %s", isis.NET)
		if level != "" {
			t.line("is-type %s", level)
		}
		t.line("metric-style wide")
		t.line("lsp-gen-interval 1")
		t.line("spf-delay-ietf init-delay 10 short-delay 100 long-delay 500 holddown 1000 time-to-learn 500")
		t.line("log-adjacency-changes")
		frrTE(t, v)
	})
}

// frrISISCircuit makes an interface part of the instance.
func frrISISCircuit(t *text, v4, v6 bool) {
	if v4 {
		t.line("ip router isis %s", isisTag)
	}
	if v6 {
		t.line("ipv6 router isis %s", isisTag)
	}
}

// frrISISPort writes the circuit of an interface. A circuit needs an address: FRR announces nothing without one.
func frrISISPort(t *text, v view, p port) {
	v4, v6 := has(p.Addresses, false), has(p.Addresses, true)
	if !v4 && !v6 {
		return
	}
	if p.PointToPoint {
		t.line("isis network point-to-point")
	}
	t.line("isis metric %d", cost(p))
	hello, dead, fast := v.timers(p, slice.ISIS)
	multiplier := max(2, dead/hello)
	if fast { // FRR has no IS-IS hellos below a second
		hello, multiplier = 1, 2
	}
	t.line("isis hello-interval %d", hello)
	t.line("isis hello-multiplier %d", min(multiplier, 100))
	t.line("isis csnp-interval 2")
	t.line("isis psnp-interval 1")
	if v.passive(p) {
		t.line("isis passive")
	}
	frrISISCircuit(t, v4, v6) // last: with it the circuit begins to speak
}

// FRR writes link-state PDUs of 1,497 bytes and refuses a circuit that cannot carry them.
const (
	defaultLSPMTU = 1497
	llcHeader     = 3 // bytes of the MTU that the LLC header takes
	minLSPMTU     = 128
)

// lspMTU is the size of link-state PDUs that every link of the slice carries, or 0 where that is the default. It is
// the same on all routers, because PDUs are flooded unchanged.
func lspMTU(s *slice.Slice) int {
	size := defaultLSPMTU
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Routing.Speaks(slice.ISIS) {
			continue
		}
		for _, p := range n.Interfaces {
			if p.MTU > 0 {
				size = min(size, p.MTU-llcHeader)
			}
		}
	}
	if size == defaultLSPMTU {
		return 0
	}
	return max(size, minLSPMTU)
}
