package routing

// birdRIP writes RIP or RIPng. It announces the interfaces' own prefixes, which BIRD takes from protocol direct.
func birdRIP(t *text, v view, ipv6 bool) {
	channel, suffix := family(ipv6)
	head := "rip rip4"
	if ipv6 {
		head = "rip ng rip" + suffix
	}
	birdProtocol(t, head, func() {
		t.line("ecmp on limit %d;", frrPaths)
		t.block(channel+" {", "};", func() {
			t.line("import all;")
			t.line("export where source ~ [ RTS_DEVICE, RTS_RIP ];")
		})
		for _, p := range v.ports {
			if !has(p.Addresses, ipv6) {
				continue
			}
			t.block(`interface "`+p.Name+`" {`, "};", func() {
				t.line("update time %d;", ripUpdate)
				t.line("timeout time %d;", ripTimeout)
				t.line("garbage time %d;", ripGarbage)
				if v.passive(p) {
					t.line("passive yes;")
				}
			})
		}
	})
}
