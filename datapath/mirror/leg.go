package mirror

import (
	"maps"
	"slices"
	"strings"
)

// LegStatus is an interface by which frames of a family come in that are the kernel's, though the router is on the
// fast path.
type LegStatus struct {
	Interface  string
	IPv4, IPv6 []string // why; empty: they are walked
}

// reasons say why what comes in by a link is the kernel's.
func (ls *links) reasons(index int) (why [2][]string) {
	l := ls.all[index]
	if l.taken {
		const reason = "a bridge, a bond or an XDP program takes its frames"
		why = [2][]string{{reason}, {reason}}
	}
	say := func(family int, when bool, reason string) {
		if when {
			why[family] = append(why[family], reason)
		}
	}
	const ipv4, ipv6 = 0, 1
	name := strings.ReplaceAll(l.name, ".", "/") // as sysctl(8) has it
	own, every := ls.settings[ipv4][index], ls.settings[ipv4][allLinks]
	say(ipv4, !own.forwarding, "net.ipv4.conf."+name+".forwarding is 0")
	// Any filter of sources asks for the route back, which the programs do not look up.
	say(ipv4, own.rpFilter, "net.ipv4.conf."+name+".rp_filter is not 0")
	say(ipv4, every.rpFilter, "net.ipv4.conf.all.rp_filter is not 0")
	own, every = ls.settings[ipv6][index], ls.settings[ipv6][allLinks]
	say(ipv6, l.noIPv6, "net.ipv6.conf."+name+".disable_ipv6 is 1")
	// IPv6 forwards by the setting for all.
	say(ipv6, !own.forwarding && every.forwarding, "net.ipv6.conf."+name+".forwarding is 0")
	say(ipv6, !every.forwarding, "net.ipv6.conf.all.forwarding is 0")
	// A proxy for neighbours looks into what it forwards (ip6_forward()).
	say(ipv6, own.proxyNDP, "net.ipv6.conf."+name+".proxy_ndp is 1")
	say(ipv6, every.proxyNDP, "net.ipv6.conf.all.proxy_ndp is 1")
	return why
}

// off lists the legs that are off the fast path, and those that are none any more, of the families that are on it.
func (ls *links) off(enabled [2]bool) (all []LegStatus) {
	const lost = "it was deleted, or moved to another namespace"
	for _, index := range slices.Sorted(maps.Keys(ls.lost)) {
		all = appendOff(all, ls.lost[index], [2][]string{{lost}, {lost}}, enabled)
	}
	for _, index := range slices.Sorted(maps.Keys(ls.why)) {
		if _, isLeg := ls.ports[index]; isLeg {
			all = appendOff(all, ls.all[index].name, ls.why[index], enabled)
		}
	}
	return all
}

func appendOff(all []LegStatus, name string, why [2][]string, enabled [2]bool) []LegStatus {
	for family, on := range enabled {
		if !on {
			why[family] = nil
		}
	}
	if len(why[0])+len(why[1]) == 0 {
		return all
	}
	return append(all, LegStatus{Interface: name, IPv4: why[0], IPv6: why[1]})
}
