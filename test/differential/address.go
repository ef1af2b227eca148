// Package differential checks the fast path against the kernels: random networks, random frames, random events, once
// with the fast path and once without. Every host must receive the same frames, and those of a flow in the same order
// where there are no queues.
//
// Networks have 2 to 40 routers and up to seven hosts; ECMP by routes or by next hop objects; blackholes, loops and
// holes; LANs, queues, and hosts behind line cards, whose frames come in by XDP; IPv4 by IPv6 gateways; mixed MTUs;
// neighbours that are unknown, stale or wrong; routes that the mirror leaves to kernels (of table local, by TOS,
// for some sources, with an MTU), and what a policy rule leaves behind. Frames are valid, odd or broken. Events are
// changes of routes, objects, links, carriers, addresses, neighbours, MTUs, and whatever makes a router leave the
// fast path.
//
// A failure prints the command that plays the same case again and makes it smaller.
package differential

import (
	"fmt"
	"net"
	"net/netip"
)

// The address plan. Two networks of the same case have the same addresses, down to the MACs: what hosts receive can
// be compared byte by byte.

func subnet4(link int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 1+link>>8, link&0xff))
}

func subnet6(link int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:1:%x::/64", link))
}

func loopback4(node int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/32", node>>8, node&0xff))
}

func loopback6(node int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:0:%x::1/128", node))
}

// nth is an address of a subnet.
func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	b[len(b)-1] += byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// mac is of an end of a link.
func mac(link, end int) net.HardwareAddr {
	return net.HardwareAddr{2, 0x50, byte(link >> 8), byte(link), 0, byte(end + 1)}
}
