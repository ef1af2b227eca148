package resolve

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
)

const (
	minMTU   = 68   // RFC 791
	minMTUv6 = 1280 // RFC 8200, section 5
)

// makeInterfaces writes the interfaces out, but for what routing adds.
func (r *resolver) makeInterfaces() {
	macs := map[string]bool{}
	for _, l := range r.links {
		for _, p := range l.ends {
			hardware := ""
			for salt := 0; hardware == "" || macs[hardware]; salt++ {
				hardware = mac(r.t.Name, p.node.name, p.name, salt)
			}
			macs[hardware] = true
			p.out.Name, p.out.Port, p.out.Link, p.out.MAC = p.name, p.number, l.name, hardware
			p.out.MTU = cmp.Or(p.in.MTU, l.MTU, slice.DefaultMTU)
			p.out.FixedMTU = p.in.MTU != 0 || l.MTU != 0
			p.out.PointToPoint = p.segment.cable
			p.out.Management = p.in.Management != nil && *p.in.Management
			if p.out.MTU < minMTUv6 && p.out.MTU >= minMTU && p.has(address.V6) {
				r.Add(l.at.At("mtu"), "write ipv6: false in this link, or a greater mtu",
					"mtu %d is too small for IPv6 on %s: at least %d", p.out.MTU, p, minMTUv6)
			}
		}
	}
}

// mac is the address of an interface: locally administered, made from names, so that it stays over restarts.
func mac(network, node, name string, salt int) string {
	h := address.Hash("mac", network, node, name, fmt.Sprint(salt))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(h>>32), byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

// chooseRouterID gives a router its ID: as written, or its first IPv4 loopback, or, where IPv4 is not used, a number
// from the pool of loopbacks that no other router has.
func (r *resolver) chooseRouterID(n *node, used *address.Set) {
	if n.kind != slice.Router {
		return
	}
	if n.own.RouterID != "" {
		id, err := netip.ParseAddr(n.own.RouterID)
		if err != nil || !id.Is4() || id.IsUnspecified() {
			r.Add(n.at.At("router_id"), "write such as 10.255.0.1", "%q is not an IPv4 address",
				n.own.RouterID)
			return
		}
		n.routerID = id
		return
	}
	if p := n.loopback(address.V4); p.IsValid() {
		n.routerID = p.Addr()
		return
	}
	if n.prev != nil && n.prev.Routing != nil {
		if id := n.prev.Routing.RouterID; id.Is4() && !used.Has(netip.PrefixFrom(id, 32)) {
			n.routerID = id
			used.Insert(netip.PrefixFrom(id, 32))
			return
		}
	}
	if p := address.Choose(r.pools.loopbacks[address.V4], 32, "loopback "+n.name, used); p.IsValid() {
		n.routerID = p.Addr()
		used.Insert(p)
	}
}

// checkRouterIDs reports routers with equal IDs.
func (r *resolver) checkRouterIDs() {
	owner := map[netip.Addr]*node{}
	for _, n := range r.nodes {
		if n.routing == nil || len(n.routing.Config) > 0 {
			continue
		}
		if other := owner[n.routerID]; other != nil {
			at := n.at.At("loopbacks")
			if n.own.RouterID != "" {
				at = n.at.At("router_id")
			}
			r.Add(at, "write router_id: in one of them", "%q and %q have the router ID %s", other.name,
				n.name, n.routerID)
		}
		owner[n.routerID] = n
	}
}
