package resolve

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// routes reads a node's static routes.
func (r *resolver) routes(n *node) {
	for i, in := range n.all.Routes {
		if out, ok := r.staticRoute(n, in, n.at.At("routes").Item(i)); ok {
			n.out.Routes = append(n.out.Routes, out)
		}
	}
}

func (r *resolver) staticRoute(n *node, in file.Route, at *diagnostic.Path) (out slice.Route, ok bool) {
	before := len(r.Found)
	out = slice.Route{Interface: in.Interface, Blackhole: in.Blackhole}
	if in.Via != "" {
		via, err := netip.ParseAddr(in.Via)
		if err != nil {
			r.Add(at, "write such as 10.1.1.1", "next hop %q is not an address", in.Via)
			return out, false
		}
		out.Via = via
	}
	switch to, err := netip.ParsePrefix(in.To); {
	case in.To == "default" && out.Via.Is6():
		out.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	case in.To == "default":
		out.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case err == nil && to != to.Masked():
		r.Add(at, "write "+to.Masked().String(), "destination %s has bits set beyond its length", in.To)
	case err == nil:
		out.To = to
	default:
		a, err := netip.ParseAddr(in.To)
		if err != nil {
			r.Add(at, "write such as 10.0.0.0/8, or default", "destination %q is not a prefix", in.To)
			return out, false
		}
		out.To = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case in.Blackhole && (in.Via != "" || in.Interface != ""):
		r.Add(at, "", "a blackhole has no next hop")
	case !in.Blackhole && in.Via == "" && in.Interface == "":
		r.Add(at, "write via or interface, or blackhole: true", "the route to %s goes nowhere", in.To)
	case out.Via.IsValid() && out.To.IsValid() && out.Via.Is4() != out.To.Addr().Is4():
		r.Add(at, "", "destination %s and next hop %s are of different families", in.To, in.Via)
	case in.Interface != "" && in.Interface != "lo" && n.byName[in.Interface] == nil:
		r.Add(at, diagnostic.SuggestOr(in.Interface, slices.Sorted(maps.Keys(n.byName))),
			"%q has no interface %q", n.name, in.Interface)
	}
	return out, len(r.Found) == before
}

// gateways gives hosts their default routes: written ones, else the first router, by name, of the first of their
// networks that has a router.
func (r *resolver) gateways() {
	for _, n := range r.nodes {
		if n.kind != slice.Host || slices.Equal(n.all.Gateway, file.Strings{"none"}) {
			continue
		}
		if len(n.all.Gateway) > 0 {
			r.writtenGateways(n)
			continue
		}
		for family := range address.Families {
			r.defaultRoute(n, family, "")
		}
	}
}

// defaultRoute adds the route by a router, of any name where router is empty. It reports false where there is none.
func (r *resolver) defaultRoute(n *node, family int, router string) bool {
	to := netip.PrefixFrom([address.Families]netip.Addr{netip.IPv4Unspecified(),
		netip.IPv6Unspecified()}[family], 0)
	if router == "" && slices.ContainsFunc(n.out.Routes, func(route slice.Route) bool { return route.To == to }) {
		return true
	}
	ports := slices.Clone(n.interfaces)
	slices.SortFunc(ports, func(a, b *port) int {
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name)) // eth2 before eth10
	})
	for _, p := range ports {
		if !p.has(family) {
			continue
		}
		for _, other := range p.segment.routers {
			if router != "" && other.node.name != router {
				continue
			}
			if via := other.first(family); via.IsValid() {
				n.out.Routes = append(n.out.Routes, slice.Route{To: to, Via: via, Interface: p.name})
				return true
			}
		}
	}
	return false
}

// first is a port's first address of a family that is not link-local IPv6.
func (p *port) first(family int) netip.Addr {
	for _, a := range p.out.Addresses {
		if address.Family(a.Addr()) == family && !address.LinkLocal(a.Addr()) {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

func (r *resolver) writtenGateways(n *node) {
	for i, text := range n.all.Gateway {
		at := n.at.At("gateway").Item(i)
		if via, err := netip.ParseAddr(text); err == nil {
			r.gatewayAddress(n, via, at)
			continue
		}
		if text == "none" {
			r.Add(at, "write none alone", "none stands beside other gateways")
			continue
		}
		if _, ok := r.byName[text]; !ok {
			r.unknownNode(at, text)
			continue
		}
		found := false
		for family := range address.Families {
			found = r.defaultRoute(n, family, text) || found
		}
		if !found {
			r.Add(at, "", "%q and its gateway %q are on no common network, or %q is no router",
				n.name, text, text)
		}
	}
}

func (r *resolver) gatewayAddress(n *node, via netip.Addr, at *diagnostic.Path) {
	for _, p := range n.interfaces {
		for _, a := range p.out.Addresses {
			if a.Masked().Contains(via) {
				to := netip.PrefixFrom([address.Families]netip.Addr{netip.IPv4Unspecified(),
					netip.IPv6Unspecified()}[address.Family(via)], 0)
				n.out.Routes = append(n.out.Routes, slice.Route{To: to, Via: via, Interface: p.name})
				return
			}
		}
	}
	r.Add(at, "", "gateway %s is on none of the networks of %q", via, n.name)
}
