package outside

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// deleteConnections makes conntrack forget what the sliver's end sends and gets: the next sliver with its addresses is
// to get none of it.
func (d device) deleteConnections() error {
	if err := forget(connectionsOf{d.inner(), d.inner6()}); err != nil {
		return fmt.Errorf("delete connections of device %s: %w", d.name(), err)
	}
	return nil
}

// deleteUnreserved makes conntrack forget connections that lead to slivers by ports of the machine that they do not
// have: those that they have released, and not those of other processes, which begin later. It is called when ports are
// released, and by an agent that adopts what another one left, which may have ended in between.
func deleteUnreserved(all []device) error {
	ports := unreserved{}
	for _, d := range all {
		ports[d.inner()], ports[d.inner6()] = d.node.Ports, d.node.Ports
	}
	if err := forget(ports); err != nil {
		return fmt.Errorf("delete connections to ports that nodes have no longer: %w", err)
	}
	return nil
}

// forget makes conntrack forget connections of both families.
func forget(which netlink.CustomConntrackFilter) error {
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		err := again(func() error {
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, which)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unreserved selects conntrack's entries of connections that NAT leads to a sliver, by its address, from a port that is
// none of these before it.
type unreserved map[netip.Addr][]slice.HostPort

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (u unreserved) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	to, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	if to = to.Unmap(); !ok || f.Reverse.SrcIP.Equal(f.Forward.DstIP) || !isInner(to) {
		return false // it is led nowhere, or not to a sliver
	}
	protocol := map[uint8]string{unix.IPPROTO_TCP: slice.TCP, unix.IPPROTO_UDP: slice.UDP}[f.Forward.Protocol]
	return !slices.Contains(u[to], slice.HostPort{Protocol: protocol, Port: f.Forward.DstPort})
}

// connectionsOf selects conntrack's entries of addresses, whichever side they are on, before or after NAT.
type connectionsOf []netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c connectionsOf) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return slices.ContainsFunc(c, func(a netip.Addr) bool {
		for _, ip := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
			if ip.Equal(a.AsSlice()) {
				return true
			}
		}
		return false
	})
}
