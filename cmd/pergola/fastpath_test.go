package main

import "testing"

func TestFastPathIsInspected(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "inspect", "--fastpath").want(t, 0,
		`(?s)NODE +IPV4 +IPV6.*\na +on +off +12 +3 +7 \(no route\) +IPv6: an ip rule of the user; eth1: `+
			`net.ipv4.conf.eth1.rp_filter is not 0\n.*memory of routes: 1 MiB of 1 GiB`, "")
	pergola(t, "inspect", "a", "--fastpath").want(t, 0,
		`(?s)IPv4 +on +-\nIPv4 by eth1 +off +net.ipv4.conf.eth1.rp_filter is not 0\nIPv6 +off +an ip rule `+
			`of the user\n\n12 routes, 3 neighbours.*\nno route +5\nttl +2\n`, "")
	pergola(t, "inspect", "sw", "--fastpath").want(t, 1, "", "sw is no router")
	pergola(t, "inspect", "a", "--fastpath", "--json").want(t, 0, `"no route": 5`, "")
}

func TestVerifyPrintsEachDifference(t *testing.T) {
	w := inLab(t)
	pergola(t, "verify").want(t, 2, "", "no network is running")
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "verify").want(t, 0, "^lab: no difference in 2 routers\n$", "")
	pergola(t, "verify", "lab").want(t, 0, "no difference", "")
	pergola(t, "verify", "a").want(t, 0, "no difference", "")
	pergola(t, "verify", "lab/a", "--json").want(t, 0, `"differences": \[\]`, "")
	pergola(t, "verify", "c").want(t, 2, "", `no node "c"`)
	w.set(func(h *host) { h.fault = "no route" })
	pergola(t, "verify", "a").want(t, 1,
		`(?s)NODE +WHAT +KERNEL +MIRROR\na +192.0.2.0/24 +by eth1 +no route\nlab: 1 difference in 2 routers`,
		"")
	pergola(t, "verify", "--json").want(t, 1, `"mirror": "no route"`, "")
}

func TestTopShowsTheBusiestFirst(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "top", "--every", "50ms").want(t, 0,
		`(?s)^INTERFACE.*\nb:eth1 +\d+ .*bit/s +0 +- +100 % +0\na:eth1 +0 .*\n\nNODE +PUNT +FRAMES/S\nb `+
			`+ttl +[0-9.]+\n$`, "")
	pergola(t, "top", "--json").want(t, 0, `"walked_in"`, "")
	pergola(t, "top", "--every", "0s").want(t, 2, "", "a span of 0s")
}
