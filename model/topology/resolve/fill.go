package resolve

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
)

// fill gives every member of a segment its addresses.
func (r *resolver) fill(s *segment) {
	taken := map[netip.Addr]bool{}
	for _, p := range s.members {
		for _, w := range p.written {
			taken[w.prefix.Addr()] = true
		}
	}
	for family := range address.Families {
		if s.auto[family] && s.subnet[family].IsValid() {
			r.fillFamily(s, family, taken)
		}
	}
	for _, p := range s.members {
		for _, w := range p.written {
			p.out.Addresses = append(p.out.Addresses, w.prefix)
		}
		// IPv4 first; written ones keep their order.
		slices.SortStableFunc(p.out.Addresses, func(a, b netip.Prefix) int {
			return cmp.Compare(address.Family(a.Addr()), address.Family(b.Addr()))
		})
	}
}

// fillFamily gives an address to the members that the file gives none: what they have in the running version, then
// new ones.
func (r *resolver) fillFamily(s *segment, family int, taken map[netip.Addr]bool) {
	var open []*port
	for _, p := range s.members {
		if _, written := p.firstWritten(family); !written && p.node.hasAutomatic() {
			open = append(open, p)
		}
	}
	for _, p := range open {
		if a, ok := p.running(s.subnet[family], taken); ok {
			p.take(a, taken)
		}
	}
	for _, p := range open {
		if p.has(family) {
			continue
		}
		a, ok := s.chooseHost(s.subnet[family], p, taken)
		if !ok {
			r.Add(p.link.at, "write a shorter prefix length", "network %s has no address left for %s",
				s.subnet[family], p)
			break
		}
		p.take(a, taken)
	}
}

// hasAutomatic reports whether interfaces of a node get automatic addresses. What a packet program forwards may be
// anything but IP.
func (n *node) hasAutomatic() bool { return n.kind != slice.Uplink && n.kind != slice.Program }

// firstWritten is the first address of a family that the file gives a port. Link-local ones come beside it.
func (p *port) firstWritten(family int) (writtenAddress, bool) {
	for _, w := range p.written {
		if a := w.prefix.Addr(); address.Family(a) == family && !address.LinkLocal(a) {
			return w, true
		}
	}
	return writtenAddress{}, false
}

func (p *port) has(family int) bool {
	return slices.ContainsFunc(p.out.Addresses, func(a netip.Prefix) bool {
		return address.Family(a.Addr()) == family
	})
}

func (p *port) take(a netip.Prefix, taken map[netip.Addr]bool) {
	taken[a.Addr()] = true
	p.out.Addresses = append(p.out.Addresses, a)
}

// running is the address in a network that a port has in the running version, if no other port has it.
func (p *port) running(subnet netip.Prefix, taken map[netip.Addr]bool) (netip.Prefix, bool) {
	if p.prev == nil {
		return netip.Prefix{}, false
	}
	for _, a := range p.prev.Addresses {
		if a.Masked() == subnet && !taken[a.Addr()] && address.Usable(subnet, a.Addr()) {
			return a, true
		}
	}
	return netip.Prefix{}, false
}

// chooseHost picks the address of a port. On a cable the first end, by the names of nodes, has the first address; on
// a LAN a port has the one that its names hash to, or the next free.
func (s *segment) chooseHost(subnet netip.Prefix, p *port, taken map[netip.Addr]bool) (netip.Prefix, bool) {
	host := subnet.Addr().BitLen() - subnet.Bits()
	slots := uint64(1) << min(host, 16) // in IPv6 they keep interface identifiers short
	start := address.Hash(p.node.name, p.link.key)
	if s.cable {
		start = uint64(slices.Index(s.members, p))
		if host > 1 {
			start++
		}
	}
	for k := range slots {
		a := address.Offset(subnet.Addr(), (start+k)%slots, 0)
		if !taken[a] && address.Usable(subnet, a) {
			return netip.PrefixFrom(a, subnet.Bits()), true
		}
	}
	return netip.Prefix{}, false
}

// readLoopbacks reads a node's written loopbacks.
func (r *resolver) readLoopbacks(n *node, used *address.Set) {
	for i, text := range n.own.Loopbacks {
		at := n.at.At("loopbacks").Item(i)
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch a := p.Addr(); {
		case err != nil || a.Is4In6():
			r.Add(at, "write such as 10.255.0.1", "%q is not an address", text)
			continue
		case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			r.Add(at, "", "%s cannot be a router's loopback", text)
			continue
		case slices.Contains(n.loopbacks, p):
			r.Add(at, "", "loopback %s is written twice", text)
			continue
		}
		n.loopbacks = append(n.loopbacks, p)
		used.Insert(p)
	}
}

// chooseLoopback gives a router a loopback of a family that it has none of.
func (r *resolver) chooseLoopback(n *node, family int, keep bool, used *address.Set) {
	if n.kind != slice.Router || !r.pools.enabled[family] || n.loopback(family).IsValid() {
		return
	}
	from := r.pools.loopbacks[family]
	bits := 32
	if family == address.V6 {
		bits = 128
	}
	var chosen netip.Prefix
	if keep {
		chosen = n.runningLoopback(from, bits, used)
	} else if chosen = address.Choose(from, bits, "loopback "+n.name, used); !chosen.IsValid() {
		r.Add(n.at, "write larger pools under addressing:", "no %s loopback is left for %q",
			address.FamilyName[family], n.name)
	}
	if chosen.IsValid() {
		n.loopbacks = append(n.loopbacks, chosen)
		used.Insert(chosen)
	}
}

// runningLoopback is the automatic loopback that a node has in the running version; invalid where it has none.
func (n *node) runningLoopback(from []netip.Prefix, bits int, used *address.Set) netip.Prefix {
	if n.prev == nil {
		return netip.Prefix{}
	}
	for _, p := range n.prev.Loopbacks {
		if p.Bits() == bits && address.Holds(from, p) && !used.Has(p) {
			return p
		}
	}
	return netip.Prefix{}
}

// loopback is a node's first loopback of a family, invalid where it has none.
func (n *node) loopback(family int) netip.Prefix {
	for _, p := range n.loopbacks {
		if address.Family(p.Addr()) == family {
			return p
		}
	}
	return netip.Prefix{}
}
