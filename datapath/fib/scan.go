package fib

import (
	"iter"
	"net/netip"
)

// scanned is for how many routes Scan holds a router at a time: some hundred microseconds.
const scanned = 1024

// Scan yields what Routes does, while the router may be changed: a route that changes meanwhile is yielded as it was,
// as it is, or not at all.
func (r *Router) Scan() iter.Seq2[netip.Prefix, Route] {
	return func(yield func(netip.Prefix, Route) bool) {
		for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if !r.scan(netip.PrefixFrom(all, 0), yield) {
				return
			}
		}
	}
}

type prefixRoute struct {
	prefix netip.Prefix
	route  Route
}

// scan yields what is in a prefix, half by half where it is too much at once.
func (r *Router) scan(p netip.Prefix, yield func(netip.Prefix, Route) bool) bool {
	found, whole := r.within(p)
	for _, f := range found {
		if !yield(f.prefix, f.route) {
			return false
		}
	}
	if whole {
		return true
	}
	upper := p.Addr().AsSlice()
	upper[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	second, _ := netip.AddrFromSlice(upper)
	return r.scan(netip.PrefixFrom(p.Addr(), p.Bits()+1), yield) &&
		r.scan(netip.PrefixFrom(second, p.Bits()+1), yield)
}

// within gives all routes within a prefix; or, if they are too many, that to the prefix alone.
func (r *Router) within(p netip.Prefix) (found []prefixRoute, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, t := range r.routes.Subnets(p) {
		if len(found) == scanned {
			found = found[:0]
			if t, ok := r.routes.Get(p); ok {
				found = append(found, prefixRoute{p, t.route.withFTN(0)})
			}
			return found, false
		}
		found = append(found, prefixRoute{q, t.route.withFTN(0)})
	}
	return found, true
}
