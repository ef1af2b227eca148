package resolve

import (
	"net/netip"

	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// pools are the ranges of automatic addresses, in the order in which they are filled, and the families in use.
type pools struct {
	loopbacks, links, lans [address.Families][]netip.Prefix
	enabled                [address.Families]bool
}

// Default pools; the package comment shows what they look like. The later ones of a family serve when the earlier
// are full, or lie in networks that the file uses itself.
var defaultPools = pools{
	loopbacks: [address.Families][]netip.Prefix{address.Prefixes("10.192.0.0/10", "100.96.0.0/12"),
		address.Prefixes("fd50:6572:676f:ffff::/96")},
	links: [address.Families][]netip.Prefix{address.Prefixes("10.0.0.0/9", "100.64.0.0/11"),
		address.Prefixes("fd50:6572:676f:fffe::/96")},
	lans: [address.Families][]netip.Prefix{address.Prefixes("172.16.0.0/12", "10.128.0.0/10", "100.112.0.0/12"),
		address.Prefixes("fd50:6572:676f::/49")},
	enabled: [address.Families]bool{true, true},
}

// makePools reads the topology's addressing.
func (r *resolver) makePools() pools {
	p := defaultPools
	in := r.t.Addressing
	if in == nil {
		return p
	}
	for family, wanted := range []*bool{in.IPv4, in.IPv6} {
		p.enabled[family] = wanted == nil || *wanted
	}
	at := diagnostic.Root.At("addressing")
	r.readPools(&p.loopbacks, in.Loopbacks, at.At("loopbacks"), 32)
	r.readPools(&p.links, in.Links, at.At("links"), 31)
	r.readPools(&p.lans, in.LANs, at.At("lans"), 24)
	return p
}

// readPools puts written pools in place of the default ones of their family. Longest is what an IPv4 pool must be
// able to hold at least once.
func (r *resolver) readPools(pools *[address.Families][]netip.Prefix, written file.Strings, at *diagnostic.Path,
	longest int) {
	var read [address.Families][]netip.Prefix
	for i, text := range written {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			r.Add(at.Item(i), "write such as 10.0.0.0/16", "%q is not a prefix", text)
			continue
		case p != p.Masked():
			r.Add(at.Item(i), "write "+p.Masked().String(), "%s has bits set beyond its length", text)
			continue
		case !p.Addr().Is4() && !p.Addr().Is6() || p.Addr().IsMulticast() || p.Addr().IsLoopback() ||
			p.Addr().Is4In6():
			r.Add(at.Item(i), "", "%s cannot be given to interfaces", text)
			continue
		case p.Addr().Is4() && p.Bits() > longest, p.Addr().Is6() && longest == 24 && p.Bits() > 64:
			r.Add(at.Item(i), "", "pool %s is too small", text)
			continue
		}
		read[address.Family(p.Addr())] = append(read[address.Family(p.Addr())], p)
	}
	for family := range read {
		if len(read[family]) > 0 {
			pools[family] = read[family]
		}
	}
}
