package routing

// RIP, in seconds: RFC 2453 has 30, 180 and 120, made for lines of 1988.
const (
	ripUpdate  = 5
	ripTimeout = 30
	ripGarbage = 20
)

// frrRIP writes RIP and RIPng.
func frrRIP(t *text, v view) {
	if v.speaks(false) {
		frrSection(t, "router rip", func() {
			t.line("version 2")
			frrRIPCommon(t, v, false)
		})
	}
	if v.speaks(true) {
		frrSection(t, "router ripng", func() { frrRIPCommon(t, v, true) })
	}
}

// frrRIPCommon writes the lines that RIP and RIPng share.
func frrRIPCommon(t *text, v view, ipv6 bool) {
	t.line("allow-ecmp")
	t.line("timers basic %d %d %d", ripUpdate, ripTimeout, ripGarbage)
	switch {
	case !has(v.node.Loopbacks, ipv6):
	case ipv6: // ripngd wants a link-local address of every interface, which lo has not
		t.line("redistribute connected")
	default:
		t.line("network lo")
		t.line("passive-interface lo")
	}
	for _, p := range v.ports {
		if !has(p.Addresses, ipv6) {
			continue
		}
		t.line("network %s", p.Name)
		if v.passive(p) {
			t.line("passive-interface %s", p.Name)
		}
	}
}
