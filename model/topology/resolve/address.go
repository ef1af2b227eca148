package resolve

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// writtenAddress is an address of the file with its path.
type writtenAddress struct {
	prefix netip.Prefix
	at     *diagnostic.Path
}

// address gives every interface and router its addresses: first the written ones, then those of the running version
// that are still allowed, then new ones. So a new address is never one that is in use.
func (r *resolver) address() {
	used := address.NewSet()
	for _, n := range r.nodes {
		r.readLoopbacks(n, used)
	}
	for _, s := range r.segments {
		r.readAddresses(s)
		r.readSubnets(s, used)
	}
	for _, keep := range []bool{true, false} {
		for family := range address.Families {
			for _, s := range r.segments {
				if !s.subnet[family].IsValid() && s.auto[family] && s.needs() {
					r.chooseSubnet(s, family, keep, used)
				}
			}
			for _, n := range r.nodes {
				r.chooseLoopback(n, family, keep, used)
			}
		}
	}
	for _, n := range r.nodes {
		r.chooseRouterID(n, used)
	}
	for _, s := range r.segments {
		r.fill(s)
	}
}

// readAddresses reads the written addresses of a segment's interfaces.
func (r *resolver) readAddresses(s *segment) {
	for _, l := range s.links {
		for _, p := range l.ends {
			own := diagnostic.InInterface(p.node.name, p.name).At("addresses")
			for i, text := range p.in.Addresses {
				r.readAddress(p, text, own.Item(i))
			}
			for _, key := range []string{p.node.name, p.String()} {
				for i, text := range l.in.Addresses[key] {
					r.readAddress(p, text, l.at.At("addresses").At(key).Item(i))
				}
			}
		}
	}
}

func (r *resolver) readAddress(p *port, text string, at *diagnostic.Path) {
	if p.node.kind == slice.Switch {
		r.Add(at, "", "a switch has no addresses")
		return
	}
	prefix, err := netip.ParsePrefix(text)
	switch a := prefix.Addr(); {
	case err != nil && !strings.Contains(text, "/"):
		r.Add(at, "write such as "+text+"/24", "address %q has no prefix length", text)
		return
	case err != nil || a.Is4In6():
		r.Add(at, "write such as 10.0.0.1/24", "%q is not an address with a prefix length", text)
		return
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || prefix.Bits() == 0:
		r.Add(at, "", "%s cannot be given to an interface", text)
		return
	case a.Is4() && prefix.Bits() < 31 && (a == prefix.Masked().Addr() || a == address.Last(prefix)):
		r.Add(at, "", "%s is the network or broadcast address of its network, not one of an interface", text)
		return
	}
	p.written = append(p.written, writtenAddress{prefix, at})
}

// readSubnets finds the networks of a segment that follow from written subnets and addresses, and reports those that
// contradict each other.
func (r *resolver) readSubnets(s *segment, used *address.Set) {
	origin := [address.Families]string{}
	s.auto = r.pools.enabled
	for _, l := range s.links {
		for family, wanted := range []*bool{l.IPv4, l.IPv6} {
			if wanted != nil {
				s.auto[family] = *wanted
			}
		}
	}
	for _, l := range s.links {
		for i, text := range l.in.Subnets {
			r.readSubnet(s, text, l.at.At("subnets").Item(i), &origin)
		}
	}
	taken := map[netip.Addr]*port{}
	for _, p := range s.members {
		for _, w := range p.written {
			a := w.prefix.Addr()
			if other := taken[a]; other != nil {
				r.Add(w.at, "", "address %s is taken by %s on the same network", a, other)
			}
			taken[a] = p
		}
		for family := range address.Families {
			if w, ok := p.firstWritten(family); ok {
				r.agreeSubnet(s, p, w, &origin[family])
			}
		}
	}
	for family := range address.Families {
		if s.subnet[family].IsValid() {
			used.Insert(s.subnet[family])
		}
	}
}

// agreeSubnet reports a port whose first address of a family is not in the segment's network. If the segment has no
// network yet, the address decides it. Origin says, for messages, what decided the network.
func (r *resolver) agreeSubnet(s *segment, p *port, w writtenAddress, origin *string) {
	a := w.prefix.Addr()
	switch subnet := s.subnet[address.Family(a)]; {
	case !subnet.IsValid():
		s.subnet[address.Family(a)] = w.prefix.Masked()
		*origin = p.String() + " has"
	case w.prefix.Masked() == subnet:
	case subnet.Overlaps(w.prefix):
		r.Add(w.at, fmt.Sprintf("write %s/%d", a, subnet.Bits()),
			"prefix length /%d differs from /%d, which %s on the same network", w.prefix.Bits(),
			subnet.Bits(), *origin)
	default:
		r.Add(w.at, "", "address %s is outside %s, which %s on the same network", w.prefix, subnet, *origin)
	}
}

func (r *resolver) readSubnet(s *segment, text string, at *diagnostic.Path, origin *[address.Families]string) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		r.Add(at, "write such as 10.1.0.0/24", "%q is not a network with a prefix length", text)
		return
	case p != p.Masked():
		r.Add(at, "write "+p.Masked().String(), "%s is an address, not a network", text)
		return
	case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Bits() == 0:
		r.Add(at, "", "%s cannot be given to interfaces", text)
		return
	}
	family := address.Family(p.Addr())
	if known := s.subnet[family]; known.IsValid() && known != p {
		r.Add(at, "one network of each family for all links that switches join",
			"%s is a second %s network beside %s", p, address.FamilyName[family], known)
		return
	}
	s.subnet[family], s.auto[family] = p, true
	origin[family] = "the link has"
}

// needs reports whether any interface of a segment gets an automatic address.
func (s *segment) needs() bool {
	for _, p := range s.members {
		if p.node.hasAutomatic() {
			return true
		}
	}
	return false
}

// chooseSubnet picks the network of a segment: with keep, that of the running version, else one by its name.
func (r *resolver) chooseSubnet(s *segment, family int, keep bool, used *address.Set) {
	from := r.pools.lans[family]
	if s.cable {
		from = r.pools.links[family]
	}
	if keep {
		s.subnet[family] = s.running(family, from, used)
	} else {
		s.subnet[family] = address.Choose(from, s.network(family), s.key, used)
		if !s.subnet[family].IsValid() {
			r.Add(s.links[0].at, "write larger pools under addressing:",
				"no %s network is left for link %q", address.FamilyName[family], s.links[0].name)
		}
	}
	if s.subnet[family].IsValid() {
		used.Insert(s.subnet[family])
	}
}

// running is the automatic network that most of a segment's interfaces have in the running version; invalid where
// there is none.
func (s *segment) running(family int, from []netip.Prefix, used *address.Set) (best netip.Prefix) {
	votes := map[netip.Prefix]int{}
	for _, p := range s.members {
		if p.prev == nil {
			continue
		}
		for _, a := range p.prev.Addresses {
			subnet := a.Masked()
			if address.Family(a.Addr()) != family || !address.Holds(from, subnet) ||
				!s.fits(family, subnet.Bits()) || used.Has(subnet) {
				continue
			}
			votes[subnet]++
			if n := votes[subnet]; n > votes[best] || n == votes[best] && subnet.Addr().Less(best.Addr()) {
				best = subnet
			}
		}
	}
	return best
}

// fits reports whether a network of the running version has room, and a length that is chosen automatically.
func (s *segment) fits(family, bits int) bool {
	need := s.network(family)
	if family == address.V6 || s.cable {
		return bits == need
	}
	return bits == need || bits == 24 && len(s.members) <= 250 || (bits == 20 || bits == 16) && bits < need
}
