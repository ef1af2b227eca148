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
func (ls *links) reasons(index int) (why perFamily[[]string]) {
	l := ls.all[index]
	if l.taken {
		const reason = "a bridge, a bond or an XDP program takes its frames"
		why = perFamily[[]string]{{reason}, {reason}}
	}
	say := func(f family, when bool, reason string) {
		if when {
			why[f] = append(why[f], reason)
		}
	}
	name := strings.ReplaceAll(l.name, ".", "/") // as sysctl(8) has it
	own, every := ls.settings[family4][index], ls.settings[family4][allLinks]
	say(family4, !own.forwarding, "net.ipv4.conf."+name+".forwarding is 0")
	// Any filter of sources asks for the route back, which the programs do not look up.
	say(family4, own.rpFilter, "net.ipv4.conf."+name+".rp_filter is not 0")
	say(family4, every.rpFilter, "net.ipv4.conf.all.rp_filter is not 0")
	own, every = ls.settings[family6][index], ls.settings[family6][allLinks]
	say(family6, l.noIPv6, "net.ipv6.conf."+name+".disable_ipv6 is 1")
	// IPv6 forwards by the setting for all.
	say(family6, !own.forwarding && every.forwarding, "net.ipv6.conf."+name+".forwarding is 0")
	say(family6, !every.forwarding, "net.ipv6.conf.all.forwarding is 0")
	// A proxy for neighbours looks into what it forwards (ip6_forward()).
	say(family6, own.proxyNDP, "net.ipv6.conf."+name+".proxy_ndp is 1")
	say(family6, every.proxyNDP, "net.ipv6.conf.all.proxy_ndp is 1")
	return why
}

// off lists the legs that are off the fast path, and those that are none any more, of the families that are on it.
func (ls *links) off(enabled perFamily[bool]) (all []LegStatus) {
	const lost = "it was deleted, or moved to another namespace"
	for _, index := range slices.Sorted(maps.Keys(ls.lost)) {
		all = appendOff(all, ls.lost[index], perFamily[[]string]{{lost}, {lost}}, enabled)
	}
	for _, index := range slices.Sorted(maps.Keys(ls.why)) {
		if _, isLeg := ls.ports[index]; isLeg {
			all = appendOff(all, ls.all[index].name, ls.why[index], enabled)
		}
	}
	return all
}

func appendOff(all []LegStatus, name string, why perFamily[[]string], enabled perFamily[bool]) []LegStatus {
	for f, on := range enabled {
		if !on {
			why[f] = nil
		}
	}
	if len(why[family4])+len(why[family6]) == 0 {
		return all
	}
	return append(all, LegStatus{Interface: name, IPv4: why[family4], IPv6: why[family6]})
}
