package fib

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is the oracle: the longest of all prefixes that cover an address.
type naive map[netip.Prefix]Route

func (n naive) lookup(a netip.Addr) Route {
	best, route := -1, Route{}
	for p, r := range n {
		if p.Bits() > best && p.Contains(a) {
			best, route = p.Bits(), r
		}
	}
	return route
}

// Prefixes are drawn from a few bit patterns, so that they nest and branch often, at all depths.
func drawPrefix(t *rapid.T) netip.Prefix {
	ipv4 := rapid.Bool().Draw(t, "ipv4")
	size := 16
	if ipv4 {
		size = 4
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = rapid.SampledFrom([]byte{0, 0, 0, 1, 128, 255, 64}).Draw(t, "byte")
	}
	a, _ := netip.AddrFromSlice(b)
	length := rapid.IntRange(0, 8*size).Draw(t, "length")
	if rapid.IntRange(0, 2).Draw(t, "whole bytes") == 0 {
		length &^= 7
	}
	return netip.PrefixFrom(a, length).Masked()
}

func drawRoute(t *rapid.T) Route {
	kind := rapid.SampledFrom([]Kind{Unicast, Unicast, Unicast, Local, Reject, Other}).Draw(t, "kind")
	if kind != Unicast {
		return Route{Kind: kind}
	}
	return Route{Kind: Unicast, Paths: rapid.SliceOfN(rapid.Custom(drawPath), 1, 4).Draw(t, "paths")}
}

var gateways = []netip.Addr{{}, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
	netip.MustParseAddr("fe80::1")}

func drawPath(t *rapid.T) Path {
	return Path{
		Port: rapid.IntRange(0, 3).Draw(t, "port"), Gateway: rapid.SampledFrom(gateways).Draw(t, "gateway"),
		Weight: rapid.SampledFrom([]int{0, 1, 2, 255, 70000}).Draw(t, "weight"),
	}
}

// edges are the addresses at which an answer may change: the ends of the prefix and what lies beside them.
func edges(p netip.Prefix) []netip.Addr {
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 1 << (7 - bit%8)
	}
	end, _ := netip.AddrFromSlice(last)
	all := []netip.Addr{p.Addr(), end, p.Addr().Prev(), end.Next()}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() })
}

// A history changes a router at random and watches every state that a program could meet.
type history struct {
	*rapid.T
	plain  *plain
	fib    *FIB
	router *Router
	want   naive
	look   []netip.Addr // where to look
	check  func()       // after every store
}

func newHistory(t *rapid.T) *history {
	h := &history{T: t, plain: newPlain(), want: naive{}}
	h.fib = h.plain.open(t)
	h.fib.stored = func() {
		if h.check != nil {
			h.check()
		}
	}
	var err error
	h.router, err = h.fib.NewRouter(1)
	must(t, err)
	return h
}

// change runs f, which turns the answer for an address into what now says. At every moment each address has its old
// answer or its new one, and once it has the new one, keeps it.
func (h *history) change(f func() error, now func(netip.Addr) Route) {
	type answer struct {
		last          entry
		before, after Route
		done          bool
	}
	answers := make([]answer, len(h.look))
	for i, a := range h.look {
		answers[i] = answer{last: ^entry(0), before: h.want.lookup(a), after: now(a)}
	}
	check := func() {
		for i, a := range h.look {
			at := &answers[i]
			e := h.router.trie(a).lookup(keyOf(a))
			if e == at.last {
				continue
			}
			at.last = e
			got := h.router.routeOf(e)
			isNew := got.Same(at.after)
			if !isNew && (at.done || !got.Same(at.before)) {
				h.Fatalf("%v goes to %v in between, from %v to %v", a, got, at.before, at.after)
			}
			at.done = at.done || isNew
		}
	}
	h.check = check
	must(h, f())
	h.check = nil
	check()
	if i := slices.IndexFunc(answers, func(a answer) bool { return !a.done }); i >= 0 {
		h.Fatalf("%v still goes to %v, not to %v", h.look[i], h.router.Lookup(h.look[i]), answers[i].after)
	}
}

func (h *history) set(p netip.Prefix, r Route) {
	after := naive{p: r}
	for q, old := range h.want {
		if q != p {
			after[q] = old
		}
	}
	h.look = append(h.look, edges(p)...)
	h.look = h.look[max(0, len(h.look)-200):]
	h.change(func() error { return h.router.SetRoute(p, r) }, after.lookup)
	h.want = after
}

func (h *history) delete(p netip.Prefix) {
	after := naive{}
	for q, old := range h.want {
		if q != p {
			after[q] = old
		}
	}
	h.change(func() error { return h.router.DeleteRoute(p) }, after.lookup)
	h.want = after
}

func (h *history) some() netip.Prefix {
	all := slices.Collect(func(yield func(netip.Prefix) bool) {
		for p := range h.want {
			if !yield(p) {
				return
			}
		}
	})
	slices.SortFunc(all, netip.Prefix.Compare)
	return rapid.SampledFrom(all).Draw(h.T, "prefix")
}

func TestRoutesAreThoseOfTheOracleAfterEveryStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		empty := h.fib.Usage()
		t.Repeat(map[string]func(*rapid.T){
			"set":     func(t *rapid.T) { h.T = t; h.set(drawPrefix(t), drawRoute(t)) },
			"set too": func(t *rapid.T) { h.T = t; h.set(drawPrefix(t), drawRoute(t)) },
			"replace": func(t *rapid.T) {
				if h.T = t; len(h.want) > 0 {
					h.set(h.some(), drawRoute(t))
				}
			},
			"delete": func(t *rapid.T) {
				if h.T = t; len(h.want) > 0 {
					h.delete(h.some())
				}
			},
			"": func(t *rapid.T) { h.T = t; h.sound() },
		})
		h.T = t
		for len(h.want) > 0 {
			h.delete(h.some())
		}
		if got := h.live(); got.nodes != 2 || got.paths != 0 || h.fib.Usage().Nexthops != empty.Nexthops {
			t.Fatalf("without routes there are %+v, %+v", got, h.fib.Usage())
		}
	})
}

type counted struct{ nodes, paths, nexthops int }

func (h *history) live() counted {
	c := h.router.contents()
	return counted{nodes: len(c.nodes), paths: len(c.paths), nexthops: len(c.nexthops)}
}

// sound checks that what is reachable is what is counted as used, and that no node holds less than two routes.
func (h *history) sound() {
	c := h.router.contents()
	f := h.fib
	if f.paths.used != len(c.paths) || f.nexthops.used != len(c.nexthops) {
		h.Fatalf("%d records and %d next hops are used, %d and %d can be reached", f.paths.used,
			f.nexthops.used, len(c.paths), len(c.nexthops))
	}
	if carved := f.nodes.used - len(c.nodes); carved*nodePaths < f.paths.used ||
		carved*nodePaths != f.paths.used+len(f.paths.free)+len(f.paths.rest) {
		h.Fatalf("%d nodes are used, %d can be reached, and %d records", f.nodes.used, len(c.nodes),
			f.paths.used)
	}
	got := naive{}
	for p, r := range h.router.Routes() {
		got[p] = r
	}
	if len(got) != len(h.want) {
		h.Fatalf("%d routes, not %d", len(got), len(h.want))
	}
	if limit := len(h.want) + 2 + len(h.router.targets); len(c.nodes) > limit {
		h.Fatalf("%d nodes for %d routes", len(c.nodes), len(h.want))
	}
	if err := h.shape(h.router.ipv4.root, 0); err != nil {
		h.Fatalf("IPv4: %v", err)
	}
	if err := h.shape(h.router.ipv6.root, 0); err != nil {
		h.Fatalf("IPv6: %v", err)
	}
}

// shape checks the invariants of type trie that lookups do not show.
func (h *history) shape(n uint32, depth int) error {
	t := h.router.ipv4 // any: nodes are in one memory
	for i := range t.node(n) {
		e := load(&t.node(n)[i])
		at := depth + 8
		if e.kind() == pathEntry {
			p := t.path(e)
			match, miss := load(&p.match), load(&p.miss)
			if int(p.length) <= at-8 || !miss.answer() || miss.length() > at ||
				p.key != p.key.first(int(p.length)) {
				return fmt.Errorf("node %d at %d, entry %d: record %+v", n, depth, i, *p)
			}
			if match.answer() && match.length() != int(p.length) {
				return fmt.Errorf("node %d at %d, entry %d: record %+v leads to length %d", n, depth, i,
					*p, match.length())
			}
			e, at = match, int(p.length)
		}
		if e.kind() == nodeEntry {
			if at%8 != 0 {
				return fmt.Errorf("node %d at %d, entry %d: a node at %d", n, depth, i, at)
			}
			if err := h.shape(e.index(), at); err != nil {
				return err
			}
		}
	}
	return nil
}
