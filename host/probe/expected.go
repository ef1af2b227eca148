package probe

import (
	"net"
	"net/netip"

	"github.com/pergola-net/pergola/model/slice"
)

// Expected is the table of a node that runs on another host: the addresses that the slice gives it, and no routes.
func Expected(n *slice.Node) Table {
	t := Table{Elsewhere: true}
	for _, i := range n.Interfaces {
		addresses := append([]netip.Prefix(nil), i.Addresses...)
		if local, ok := linkLocal(i.MAC); ok {
			addresses = append(addresses, local)
		}
		t.Interfaces = append(t.Interfaces, Interface{Name: i.Name, Up: true, MTU: i.MTU, Addresses: addresses})
	}
	return t
}

// linkLocal is the address that the kernel gives an interface with a MAC address (RFC 4291, appendix A), by which
// routing daemons name their neighbours.
func linkLocal(address string) (netip.Prefix, bool) {
	mac, err := net.ParseMAC(address)
	if err != nil || len(mac) != 6 {
		return netip.Prefix{}, false
	}
	a := [16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4],
		15: mac[5],
	}
	return netip.PrefixFrom(netip.AddrFrom16(a), 64), true
}
