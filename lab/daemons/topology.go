package daemons

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Topology writes slices for tests: routers r1, r2, ... with loopbacks 10.0.0.N and 2001:db8::N, links with /31 and
// /127.
type Topology struct{ Slice slice.Slice }

// Router adds a router that speaks the protocols.
func (b *Topology) Router(name string, daemon slice.Daemon, protocols ...slice.Protocol) *slice.Node {
	number := len(b.Slice.Nodes) + 1
	b.Slice.Nodes = append(b.Slice.Nodes, slice.Node{
		Name: name,
		Kind: slice.Router,
		Loopbacks: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}), 32),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8::%x/128", number)),
		},
		Routing: &slice.Routing{
			Daemon:    daemon,
			Protocols: protocols,
			RouterID:  netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}),
			ISIS:      &slice.ISISNode{NET: fmt.Sprintf("49.0001.0100.0000.%04d.00", number), Level: 2},
		},
	})
	return &b.Slice.Nodes[len(b.Slice.Nodes)-1]
}

// Host adds a host without addresses.
func (b *Topology) Host(name string) {
	b.Slice.Nodes = append(b.Slice.Nodes, slice.Node{Name: name, Kind: slice.Host})
}

// Link joins nodes: two by a cable, more by a LAN. Interfaces are eth1, eth2, ... It gives the link's name.
func (b *Topology) Link(names ...string) string {
	number := len(b.Slice.Links) + 1
	l := slice.Link{Name: fmt.Sprintf("l%d", number), LAN: len(names) > 2}
	v4, v6 := 31, 127
	if l.LAN {
		v4, v6 = 24, 64
	}
	for i, name := range names {
		host := i
		if l.LAN {
			host++
		}
		n := b.Slice.Node(name)
		port := slice.Interface{
			Name: fmt.Sprintf("eth%d", len(n.Interfaces)+1),
			Link: l.Name,
			MTU:  1500,
			Addresses: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(1 + number>>8), byte(number),
					byte(host)}), v4),
				netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x:%x::%x/%d", 1+number>>8,
					number&0xff, host, v6)),
			},
			PointToPoint: !l.LAN,
		}
		n.Interfaces = append(n.Interfaces, port)
		l.Ends = append(l.Ends, slice.End{Node: name, Interface: port.Name})
	}
	b.Slice.Links = append(b.Slice.Links, l)
	return l.Name
}

// Done gives the slice in order. Pointers that Router gave are stale from here on.
func (b *Topology) Done() *slice.Slice {
	s := b.Slice
	s.Name = "lab"
	slices.SortFunc(s.Nodes, func(a, b slice.Node) int { return cmp.Compare(a.Name, b.Name) })
	return &s
}
