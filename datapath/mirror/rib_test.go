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
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// kernel is a naive one: lists of routes, in the order in which it prefers them, and what it does to them.
type kernel struct {
	*rapid.T
	v      *view
	maps   *memory
	v6     bool
	routes []kroute
	links  [3]bool // up; ifindexes 1 to 3, ports 101 to 103
	source [3]bool // address 10.9.<i>.1 is there
	object [2]path // by id less one; link 0: is not there
	bare   bool    // objects' routes do not spell them out
	during part    // of a dump
	late   bool    // events wait
	queue  []rtnl.Message
}

var (
	prefixes4 = parsePrefixes("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "10.2.0.0/16")
	prefixes6 = parsePrefixes("::/0", "2001::/16", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::1/128",
		"2001:db9::/32")
)

func parsePrefixes(all ...string) (ps []netip.Prefix) {
	for _, s := range all {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// Whatever happens, in whatever order: frames go where the kernel would send them, or to the kernel. After a dump
// nothing is left to the kernel but what is in no message.
func TestMirrorNeverLies(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				k := &kernel{T: t, maps: newMemory(), v6: v6, links: [3]bool{true, true, true},
					during: parts, bare: rapid.Bool().Draw(t, "bare")}
				k.v = newView(k.maps, map[int]int{1: 101, 2: 102, 3: 103})
				k.v.links.live = true
				k.dump()
				actions := map[string]func(*rapid.T){
					"": func(*rapid.T) { k.check(false) }, "add": k.add, "add2": k.add,
					"add3": k.add, "replace": k.replace, "delete": k.delete,
					"link": k.flip, "object": k.setObject, "delete an object": k.deleteObject,
					"dump": func(*rapid.T) { k.dump(); k.check(true) },
				}
				if v6 {
					actions["append"], actions["delete a path"] = k.appendPath, k.deletePath
					actions["append another kind"] = k.append6
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

// describe gives a message in words, for the log of a failure.
func describe(m rtnl.Message) string {
	if m.Kind != unix.RTM_NEWROUTE && m.Kind != unix.RTM_DELROUTE {
		return fmt.Sprintf("type %d, % x", m.Kind, m.Data)
	}
	p, n, _, err := new(routeParser).parse(m)
	if err != nil {
		return err.Error()
	}
	verb := map[bool]string{true: "new", false: "gone"}[m.Kind == unix.RTM_NEWROUTE]
	return fmt.Sprintf("%s (flags %#x) %s table %d metric %d tos %d kind %d %+v", verb, m.Flags, p, n.table,
		n.metric, n.tos, n.hops.kind, n.hops.paths)
}

func (k *kernel) notify(m rtnl.Message) {
	if k.late {
		k.queue = append(k.queue, m)
		return
	}
	k.Logf("event: %s", describe(m))
	if err := k.v.event(m, k.during); err != nil {
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

// disturbedDump has all read while things change: what the dump says may be newer than events that come after it, and
// older than events that came before.
func (k *kernel) disturbedDump(change func()) {
	k.v.begin()
	for p := range parts {
		k.during = p
		// links change and are dumped under one lock
		disturbed := p == partAddresses || p == partRoutes4 || p == partRoutes6
		if disturbed {
			k.late = true
			change()
		}
		ms := k.part(p)
		at := 0
		if disturbed {
			at = rapid.IntRange(0, len(ms)).Draw(k.T, "dumped before")
			k.confirm(ms[:at])
			k.late = false
			for _, m := range k.queue {
				k.notify(m)
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

func (k *kernel) confirm(ms []rtnl.Message) {
	for _, m := range ms {
		k.Logf("dump: %s", describe(m))
		if err := k.v.confirm(m); err != nil {
			k.Fatal(err)
		}
	}
}

func (k *kernel) part(p part) (ms []rtnl.Message) {
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
	case p == partObjects:
		for i, o := range k.object {
			if o.link != 0 {
				ms = append(ms, objectMessage(unix.RTM_NEWNEXTHOP, uint32(i+1), o))
			}
		}
	case p == partRoutes4 && !k.v6, p == partRoutes6 && k.v6:
		for _, r := range k.routes {
			ms = append(ms, r.message(unix.RTM_NEWROUTE, 0))
		}
	}
	return ms
}

// choice is what the kernel does with a frame, and whether messages show it.
func (k *kernel) choice(addr netip.Addr) (fib.Route, bool) {
	tables := [][]byte{{255, 254}, {253}}
	if k.v6 {
		tables = [][]byte{{255}, {254}}
	}
	certain := !slices.ContainsFunc(k.routes, func(r kroute) bool {
		return (r.tos != 0 || r.table == 253) &&
			r.prefix.Contains(addr)
	})
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
		return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), cmp.Compare(b.table, a.table),
			cmp.Compare(a.metric, b.metric))
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
			route.Paths = append(route.Paths, fib.Path{Port: 100 + p.link, Gateway: p.gateway,
				Weight: p.weight})
		}
	}
	return route
}

func (k *kernel) check(dumped bool) {
	addrs := []string{"10.1.1.1", "10.1.1.2", "10.1.2.1", "10.2.0.1", "10.3.0.1", "11.0.0.1"}
	if k.v6 {
		addrs = []string{"2001:db8:1::1", "2001:db8:1::2", "2001:db8:2::1", "2001:db9::1", "2001:dba::1",
			"2002::1"}
	}
	lengths := k.maps.lengths()
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		want, sure := k.choice(addr)
		have := k.maps.longest(addr, lengths)
		if have.Same(want) || have.Kind == fib.Other && (!dumped || !sure) {
			continue
		}
		if !dumped && have.Kind == fib.Unicast && k.harmless(have, want) {
			continue
		}
		if want.Kind != have.Kind || !dumped || sure {
			k.Fatalf("%s: mirror %+v, kernel %+v (sure: %v, dumped: %v)\nroutes %+v", a, have, want, sure,
				dumped, k.routes)
		}
	}
}

// harmless reports whether all paths by which frames may leave are the kernel's, too: on a link that is held they do
// not.
func (k *kernel) harmless(have, want fib.Route) bool {
	return !slices.ContainsFunc(have.Paths, func(p fib.Path) bool {
		return k.maps.legs[p.Port].Up &&
			!slices.Contains(want.Paths, p)
	})
}
