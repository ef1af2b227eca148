package mirror

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// What may happen to a naive kernel's routes, and what it says of that.

func source(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i), 1}) }

func (k *kernel) draw() kroute {
	r := kroute{
		prefix: rapid.SampledFrom(prefixes4).Draw(k.T, "prefix"),
		table:  rapid.SampledFrom([]byte{254, 254, 254, 255, 253}).Draw(k.T, "table"),
		metric: uint32(rapid.IntRange(0, 2).Draw(k.T, "metric")),
		kind:   rapid.SampledFrom([]byte{1, 1, 1, 1, 2, 6, 9}).Draw(k.T, "kind"),
	}
	if k.v6 {
		r.prefix = prefixes6[slices.Index(prefixes4, r.prefix)]
		r.table = max(r.table, 254)
		r.metric++
	} else if rapid.IntRange(0, 9).Draw(k.T, "tos") == 0 {
		r.tos = 0x10
	}
	if r.kind != 1 {
		return r
	}
	if i := rapid.IntRange(0, 9).Draw(k.T, "object"); i < len(k.object) && k.object[i].link != 0 {
		r.object, r.bare, r.paths = uint32(i+1), k.bare, []path{k.object[i]}
		return r
	}
	for range rapid.IntRange(1, 3).Draw(k.T, "paths") {
		if p := k.drawPath(); k.links[p.link-1] && !slices.ContainsFunc(r.paths, p.same) {
			r.paths = append(r.paths, p)
		}
	}
	if len(r.paths) == 1 { // has no weight
		r.paths[0].weight = 1
	}
	if i := rapid.IntRange(0, 5).Draw(k.T, "source"); !k.v6 && i < 3 && k.source[i] {
		r.source = source(i)
	}
	return r
}

func (k *kernel) drawPath() path {
	link := rapid.IntRange(1, 3).Draw(k.T, "link")
	gateway := netip.AddrFrom4([4]byte{192, 168, byte(link), byte(rapid.IntRange(2, 3).Draw(k.T, "gateway"))})
	if k.v6 {
		gateway = netip.MustParseAddr("fe80::" + gateway.String())
	}
	return path{link: link, gateway: gateway, weight: rapid.SampledFrom([]int{1, 1, 3}).Draw(k.T, "weight")}
}

func (r kroute) rival(o kroute) bool {
	return r.prefix == o.prefix && r.table == o.table && r.tos == o.tos && r.metric == o.metric
}

func (k *kernel) rivalOf(r kroute) int { return slices.IndexFunc(k.routes, r.rival) }

func (r kroute) possible() bool { return r.kind != 1 || len(r.paths) > 0 }

func (k *kernel) add(*rapid.T) {
	if r := k.draw(); r.possible() && k.rivalOf(r) < 0 {
		k.routes = append(k.routes, r)
		k.notify(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL))
	}
}

func (k *kernel) replace(*rapid.T) {
	r := k.draw()
	i := k.rivalOf(r)
	if k.v6 { // the first with gateways, or without, as the new one; otherwise the first (fib6_add_rt2node())
		if j := slices.IndexFunc(k.routes, func(o kroute) bool {
			return o.rival(r) &&
				o.joins() == r.joins()
		}); j >= 0 {
			i = j
		}
	}
	if !r.possible() || i < 0 || k.has(r) {
		return
	}
	k.routes[i] = r
	k.notify(r.message(unix.RTM_NEWROUTE, unix.NLM_F_REPLACE))
}

// has reports whether there is such a route already.
func (k *kernel) has(r kroute) bool {
	return slices.ContainsFunc(k.routes, func(o kroute) bool {
		return o.rival(r) && o.kind == r.kind && o.object == r.object && o.source == r.source &&
			slices.EqualFunc(o.paths, r.paths, path.same)
	})
}

func (k *kernel) append4(*rapid.T) {
	r := k.draw()
	if !r.possible() || k.rivalOf(r) < 0 || k.has(r) {
		return
	}
	k.routes = append(k.routes, r)
	k.notify(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
}

// joins reports whether it is one route with others of the same metric, in IPv6 (rt6_qualify_for_ecmp()).
func (r kroute) joins() bool { return r.kind == 1 && r.object == 0 }

// append6: what is no further path of a route is another with the same metric.
func (k *kernel) append6(*rapid.T) {
	r := k.draw()
	i := k.rivalOf(r)
	if !r.possible() || i < 0 || k.has(r) || r.joins() &&
		slices.ContainsFunc(k.routes, func(o kroute) bool { return o.rival(r) && o.joins() }) {
		return
	}
	k.routes = append(k.routes, r)
	k.notify(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
}

func (k *kernel) delete(*rapid.T) {
	if len(k.routes) == 0 {
		return
	}
	i := rapid.IntRange(0, len(k.routes)-1).Draw(k.T, "which")
	r := k.routes[i]
	k.routes = slices.Delete(k.routes, i, i+1)
	k.notify(r.message(unix.RTM_DELROUTE, 0))
}

// appendPath: the message has the whole route.
func (k *kernel) appendPath(*rapid.T) {
	p := k.drawPath()
	for i, r := range k.routes {
		if r.joins() && k.links[p.link-1] && !slices.ContainsFunc(r.paths, p.same) {
			k.routes[i].paths = append(slices.Clone(r.paths), p)
			k.notify(k.routes[i].message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
			return
		}
	}
}

// deletePath: the message has the path alone.
func (k *kernel) deletePath(*rapid.T) {
	for i, r := range k.routes {
		if len(r.paths) < 2 {
			continue
		}
		j := rapid.IntRange(0, len(r.paths)-1).Draw(k.T, "which")
		k.routes[i].paths = slices.Delete(slices.Clone(r.paths), j, j+1)
		if len(k.routes[i].paths) == 1 {
			k.routes[i].paths[0].weight = 1 // which is in no message any more
		}
		r.paths = r.paths[j : j+1]
		k.notify(r.message(unix.RTM_DELROUTE, 0))
		return
	}
}

// flip takes a link down or up. Nothing is said of routes.
func (k *kernel) flip(*rapid.T) {
	i := rapid.IntRange(0, 2).Draw(k.T, "link")
	k.links[i] = !k.links[i]
	for n, r := range k.routes {
		k.routes[n].paths = slices.Clone(r.paths)
		for j, p := range r.paths {
			k.routes[n].paths[j].dead = !k.links[p.link-1]
		}
	}
	k.routes = slices.DeleteFunc(k.routes, func(r kroute) bool { return len(r.paths) > 0 && !r.alive() })
	for n, o := range k.object {
		if o.link == i+1 && !k.links[i] {
			k.object[n] = path{}
		}
	}
	k.notify(linkMessage(unix.RTM_NEWLINK, i+1, k.links[i]))
}

// setObject adds or replaces a next-hop object. Routes by it lead elsewhere, which a message says only where they spell
// it out.
func (k *kernel) setObject(*rapid.T) {
	i := rapid.IntRange(0, len(k.object)-1).Draw(k.T, "object")
	p := k.drawPath()
	p.weight = 1
	if !k.links[p.link-1] || k.object[i] == p {
		return
	}
	k.object[i] = p
	k.notify(objectMessage(unix.RTM_NEWNEXTHOP, uint32(i+1), p))
	for n, r := range k.routes {
		if r.object != uint32(i+1) {
			continue
		}
		k.routes[n].paths = []path{p}
		if !k.bare {
			k.notify(k.routes[n].message(unix.RTM_NEWROUTE, unix.NLM_F_REPLACE))
		}
	}
}

// deleteObject: nothing is said of its routes, which go with it.
func (k *kernel) deleteObject(*rapid.T) {
	i := rapid.IntRange(0, len(k.object)-1).Draw(k.T, "object")
	if p := k.object[i]; p.link != 0 {
		k.object[i] = path{}
		k.routes = slices.DeleteFunc(k.routes, func(r kroute) bool { return r.object == uint32(i+1) })
		k.notify(objectMessage(unix.RTM_DELNEXTHOP, uint32(i+1), p))
	}
}

func (r kroute) alive() bool {
	return len(r.paths) == 0 || slices.ContainsFunc(r.paths, func(p path) bool { return !p.dead })
}

// readdress adds or deletes an address, the latter with all routes that prefer it.
func (k *kernel) readdress(*rapid.T) {
	i := rapid.IntRange(0, 2).Draw(k.T, "address")
	k.source[i] = !k.source[i]
	kind := uint16(unix.RTM_NEWADDR)
	if !k.source[i] {
		kind = unix.RTM_DELADDR
		// The last address of its link: all routes by it go.
		k.routes = slices.DeleteFunc(k.routes, func(r kroute) bool { return r.source == source(i) })
	}
	k.notify(addressMessage(kind, i+1, source(i)))
}
