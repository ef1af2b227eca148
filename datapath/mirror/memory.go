package mirror

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/datapath/fib"
)

// memory is a sink that remembers: what the maps should hold.
type memory struct {
	routes     map[netip.Prefix]fib.Route
	legs       map[int]fib.Leg
	neighbours map[neighbourKey]fib.Neighbour // by port
	addresses  map[netip.Addr]bool
}

func newMemory() *memory {
	return &memory{
		routes: map[netip.Prefix]fib.Route{}, legs: map[int]fib.Leg{},
		neighbours: map[neighbourKey]fib.Neighbour{}, addresses: map[netip.Addr]bool{},
	}
}

func (m *memory) SetRoute(p netip.Prefix, r fib.Route) error { m.routes[p] = r; return nil }

func (m *memory) DeleteRoute(p netip.Prefix) error { delete(m.routes, p); return nil }

func (m *memory) SetLeg(port int, l fib.Leg) error { m.legs[port] = l; return nil }

func (m *memory) DeleteLeg(port int) error { delete(m.legs, port); return nil }

func (m *memory) SetNeighbour(port int, addr netip.Addr, n fib.Neighbour) error {
	m.neighbours[neighbourKey{port, addr}] = n
	return nil
}

func (m *memory) DeleteNeighbour(port int, addr netip.Addr) error {
	delete(m.neighbours, neighbourKey{port, addr})
	return nil
}

func (m *memory) SetAddress(addr netip.Addr) error { m.addresses[addr] = true; return nil }

func (m *memory) DeleteAddress(addr netip.Addr) error { delete(m.addresses, addr); return nil }

// lengths are those of all prefixes, the longest first.
func (m *memory) lengths() perFamily[[]int] {
	var have perFamily[[129]bool]
	for p := range m.routes {
		have[familyOf(p.Addr())][p.Bits()] = true
	}
	var lengths perFamily[[]int]
	for f := range families {
		for bits, ok := range have[f] {
			if ok {
				lengths[f] = append(lengths[f], bits)
			}
		}
		slices.Reverse(lengths[f])
	}
	return lengths
}

// longest is the route of the longest prefix that covers an address.
func (m *memory) longest(addr netip.Addr, lengths perFamily[[]int]) fib.Route {
	for _, bits := range lengths[familyOf(addr)] {
		if r, ok := m.routes[netip.PrefixFrom(addr, bits).Masked()]; ok {
			return r
		}
	}
	return fib.Route{}
}
