package mirror

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/datapath/fib"
)

// kernel is a naive one: lists of routes, in the order in which it prefers them, and what it does to them.
type kernel struct {
	*rapid.T
	v      *view
	told   *memory
	v6     bool
	routes []kroute
	links  [3]bool // up; ifindexes 1 to 3, ports 101 to 103
	source [3]bool // address 10.9.<i>.1 is there
	during part    // of a dump
	late   bool    // events wait
	queue  []message
}

var (
	prefixes4 = parsePrefixes("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "10.2.0.0/16")
	prefixes6 = parsePrefixes("::/0", "2001::/16", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::1/128", "2001:db9::/32")
)

func parsePrefixes(all ...string) (ps []netip.Prefix) {
	for _, s := range all {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// Whatever happens, in whatever order: frames go where the kernel would send them, or to the kernel. After a dump nothing is left to
// the kernel but what no message tells.
func TestMirrorNeverLies(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				k := &kernel{T: t, told: newMemory(), v6: v6, links: [3]bool{true, true, true}, during: parts}
				k.v = newView(k.told, map[int]int{1: 101, 2: 102, 3: 103})
				k.v.links.live = true
				k.dump()
				actions := map[string]func(*rapid.T){
					"": func(*rapid.T) { k.check(false) }, "add": k.add, "add2": k.add, "add3": k.add, "replace": k.replace, "delete": k.delete,
					"link": k.flip, "dump": func(*rapid.T) { k.dump(); k.check(true) },
				}
				if v6 {
					actions["append"], actions["delete a path"], actions["append another kind"] = k.appendPath, k.deletePath, k.append6
				} else {
					actions["append"], actions["address"] = k.append4, k.readdress
				}
				var names []string
				for name := range actions {
					if name != "" && name != "dump" {
						names = append(names, name)
					}
				}
				slices.Sort(names)
				actions["disturbed dump"] = func(t *rapid.T) {
					k.disturbedDump(func() {
						for range rapid.IntRange(0, 2).Draw(t, "changes") {
							actions[rapid.SampledFrom(names).Draw(t, "change")](t)
						}
					})
				}
				t.Repeat(actions)
			})
		})
	}
}

// String is for the log of a failure.
func (m message) String() string {
	if m.kind != unix.RTM_NEWROUTE && m.kind != unix.RTM_DELROUTE {
		return fmt.Sprintf("type %d, % x", m.kind, m.data)
	}
	p, n, _, err := new(routeParser).parse(m)
	if err != nil {
		return err.Error()
	}
	verb := map[bool]string{true: "new", false: "gone"}[m.kind == unix.RTM_NEWROUTE]
	return fmt.Sprintf("%s (flags %#x) %s table %d metric %d tos %d kind %d %+v", verb, m.flags, p, n.table, n.metric, n.tos, n.hops.kind, n.hops.paths)
}

func (k *kernel) tell(m message) {
	if k.late {
		k.queue = append(k.queue, m)
		return
	}
	k.Logf("event: %v", m)
	if err := k.v.tell(m, k.during); err != nil {
		k.Fatal(err)
	}
}

// dump has all read again.
func (k *kernel) dump() {
	k.v.begin()
	for p := range parts {
		k.confirm(k.part(p))
		if err := k.v.sweep(p); err != nil {
			k.Fatal(err)
		}
	}
	if err := k.v.end(); err != nil {
		k.Fatal(err)
	}
}

// disturbedDump has all read while things change: what the dump says may be newer than events that come after it, and older than events that
// came before.
func (k *kernel) disturbedDump(change func()) {
	k.v.begin()
	for p := range parts {
		k.during = p
		disturbed := p == partAddresses || p == partRoutes4 || p == partRoutes6 // links change and are dumped under one lock
		if disturbed {
			k.late = true
			change()
		}
		ms := k.part(p)
		at := 0
		if disturbed {
			at = rapid.IntRange(0, len(ms)).Draw(k.T, "told before")
			k.confirm(ms[:at])
			k.late = false
			for _, m := range k.queue {
				k.tell(m)
			}
			k.queue = nil
			change()
		}
		k.confirm(ms[at:])
		k.Logf("dump: part %d ends", p)
		if err := k.v.sweep(p); err != nil {
			k.Fatal(err)
		}
	}
	if err := k.v.end(); err != nil {
		k.Fatal(err)
	}
	k.during = parts
}

func (k *kernel) confirm(ms []message) {
	for _, m := range ms {
		k.Logf("dump: %v", m)
		if err := k.v.confirm(m); err != nil {
			k.Fatal(err)
		}
	}
}

func (k *kernel) part(p part) (ms []message) {
	switch {
	case p == partLinks:
		for i, up := range k.links {
			ms = append(ms, linkMessage(unix.RTM_NEWLINK, i+1, up))
		}
	case p == partAddresses:
		for i, there := range k.source {
			if there {
				ms = append(ms, addressMessage(unix.RTM_NEWADDR, i+1, source(i)))
			}
		}
	case p == partRoutes4 && !k.v6, p == partRoutes6 && k.v6:
		for _, r := range k.routes {
			ms = append(ms, r.message(unix.RTM_NEWROUTE, 0))
		}
	}
	return ms
}

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
		k.tell(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL))
	}
}

func (k *kernel) replace(*rapid.T) {
	r := k.draw()
	i := k.rivalOf(r)
	if k.v6 { // the first with gateways, or without, as the new one; otherwise the first (fib6_add_rt2node())
		if j := slices.IndexFunc(k.routes, func(o kroute) bool { return o.rival(r) && (o.kind == 1) == (r.kind == 1) }); j >= 0 {
			i = j
		}
	}
	if !r.possible() || i < 0 || k.has(r) {
		return
	}
	k.routes[i] = r
	k.tell(r.message(unix.RTM_NEWROUTE, unix.NLM_F_REPLACE))
}

// has reports whether there is such a route already.
func (k *kernel) has(r kroute) bool {
	return slices.ContainsFunc(k.routes, func(o kroute) bool {
		return o.rival(r) && o.kind == r.kind && o.source == r.source && slices.EqualFunc(o.paths, r.paths, path.same)
	})
}

func (k *kernel) append4(*rapid.T) {
	r := k.draw()
	if !r.possible() || k.rivalOf(r) < 0 || k.has(r) {
		return
	}
	k.routes = append(k.routes, r)
	k.tell(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
}

// append6: what is no further path of a route is another with the same metric.
func (k *kernel) append6(*rapid.T) {
	r := k.draw()
	i := k.rivalOf(r)
	if !r.possible() || i < 0 || k.has(r) || r.kind == 1 && slices.ContainsFunc(k.routes, func(o kroute) bool { return o.rival(r) && o.kind == 1 }) {
		return
	}
	k.routes = append(k.routes, r)
	k.tell(r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
}

func (k *kernel) delete(*rapid.T) {
	if len(k.routes) == 0 {
		return
	}
	i := rapid.IntRange(0, len(k.routes)-1).Draw(k.T, "which")
	r := k.routes[i]
	k.routes = slices.Delete(k.routes, i, i+1)
	k.tell(r.message(unix.RTM_DELROUTE, 0))
}

// appendPath: the whole route is told.
func (k *kernel) appendPath(*rapid.T) {
	p := k.drawPath()
	for i, r := range k.routes {
		if r.kind == 1 && k.links[p.link-1] && !slices.ContainsFunc(r.paths, p.same) {
			k.routes[i].paths = append(slices.Clone(r.paths), p)
			k.tell(k.routes[i].message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND))
			return
		}
	}
}

// deletePath: only the path is told.
func (k *kernel) deletePath(*rapid.T) {
	for i, r := range k.routes {
		if len(r.paths) < 2 {
			continue
		}
		j := rapid.IntRange(0, len(r.paths)-1).Draw(k.T, "which")
		k.routes[i].paths = slices.Delete(slices.Clone(r.paths), j, j+1)
		if len(k.routes[i].paths) == 1 {
			k.routes[i].paths[0].weight = 1 // which no message tells any more
		}
		r.paths = r.paths[j : j+1]
		k.tell(r.message(unix.RTM_DELROUTE, 0))
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
	k.tell(linkMessage(unix.RTM_NEWLINK, i+1, k.links[i]))
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
	k.tell(addressMessage(kind, i+1, source(i)))
}

// choice is what the kernel does with a frame, and whether messages tell it.
func (k *kernel) choice(addr netip.Addr) (fib.Route, bool) {
	tables := [][]byte{{255, 254}, {253}}
	if k.v6 {
		tables = [][]byte{{255}, {254}}
	}
	certain := !slices.ContainsFunc(k.routes, func(r kroute) bool { return (r.tos != 0 || r.table == 253) && r.prefix.Contains(addr) })
	for _, asked := range tables {
		r, sure, ok := k.ask(addr, asked)
		certain = certain && sure
		if ok {
			return r, certain && asked[0] != 253
		}
	}
	return fib.Route{}, certain
}

func (k *kernel) ask(addr netip.Addr, asked []byte) (_ fib.Route, sure, ok bool) {
	sure = true
	var fits []kroute
	for _, r := range k.routes {
		if r.prefix.Contains(addr) && slices.Contains(asked, r.table) && r.alive() {
			fits = append(fits, r)
		}
	}
	slices.SortStableFunc(fits, func(a, b kroute) int {
		return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), cmp.Compare(b.table, a.table), cmp.Compare(a.metric, b.metric))
	})
	for len(fits) > 0 {
		n := 1 // as long as the longest
		for n < len(fits) && fits[n].prefix == fits[0].prefix {
			n++
		}
		here := fits[:n:n]
		fits = fits[n:]
		sure = sure && !slices.ContainsFunc(here, func(r kroute) bool { return r.tos != 0 })
		here = slices.DeleteFunc(here, func(r kroute) bool { return r.tos != 0 })
		if len(here) == 0 {
			continue
		}
		r := here[0]
		sure = sure && (len(here) == 1 || !here[1].rival(r)) && r.kind != 9
		return r.route(), sure, true
	}
	return fib.Route{}, sure, false
}

func (r kroute) route() fib.Route {
	route := fib.Route{Kind: kindOf(r.kind)}
	for _, p := range r.paths {
		if !p.dead {
			route.Paths = append(route.Paths, fib.Path{Port: 100 + p.link, Gateway: p.gateway, Weight: p.weight})
		}
	}
	return route
}

func (k *kernel) check(dumped bool) {
	addrs := []string{"10.1.1.1", "10.1.1.2", "10.1.2.1", "10.2.0.1", "10.3.0.1", "11.0.0.1"}
	if k.v6 {
		addrs = []string{"2001:db8:1::1", "2001:db8:1::2", "2001:db8:2::1", "2001:db9::1", "2001:dba::1", "2002::1"}
	}
	lengths := k.told.lengths()
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		want, sure := k.choice(addr)
		have := k.told.longest(addr, lengths)
		if have.Same(want) || have.Kind == fib.Other && (!dumped || !sure) {
			continue
		}
		if !dumped && have.Kind == fib.Unicast && k.harmless(have, want) {
			continue
		}
		if want.Kind != have.Kind || !dumped || sure {
			k.Fatalf("%s: mirror %+v, kernel %+v (sure: %v, dumped: %v)\nroutes %+v", a, have, want, sure, dumped, k.routes)
		}
	}
}

// harmless reports whether all paths by which frames may leave are the kernel's, too: on a link that is held they do not.
func (k *kernel) harmless(have, want fib.Route) bool {
	return !slices.ContainsFunc(have.Paths, func(p fib.Path) bool { return k.told.legs[p.Port].Up && !slices.Contains(want.Paths, p) })
}
