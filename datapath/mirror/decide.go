package mirror

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/datapath/fib"
)

// answer is what follows from a route, given the ports and the next-hop objects.
type answer struct {
	fib.Route
	dead bool // all its paths are: the kernel goes on to the next route
}

// leave is the route that programs have for prefixes that they leave to the kernel.
var leave = &answer{Route: fib.Route{Kind: fib.Other}}

// settle gives the programs what has changed for a prefix.
func (r *rib) settle(p netip.Prefix, e *entry) error {
	if len(e.routes) == 0 && e.suspect == 0 {
		r.entries.remove(p)
	}
	if err := r.install(p, e); err != nil {
		return err
	}
	if p.Addr().Is6() && !p.IsSingleIP() {
		return r.shadow(p, e)
	}
	return nil
}

func (r *rib) install(p netip.Prefix, e *entry) error {
	now := r.decide(p, e)
	switch was := e.installed; {
	case now == nil && was == nil, now != nil && was != nil && (now == was || equal(now, was)):
		return nil
	case now == nil:
		e.installed = nil
		return r.out.DeleteRoute(p)
	}
	e.installed = now
	return r.out.SetRoute(p, *now)
}

func equal(a, b *fib.Route) bool {
	if a.Kind != b.Kind || len(a.Paths) != len(b.Paths) {
		return false
	}
	for i := range a.Paths {
		if a.Paths[i] != b.Paths[i] {
			return false
		}
	}
	return true
}

// decide is the kernel's choice: of table local before main, of each the lowest metric that is alive. Nil: a shorter
// prefix decides.
func (r *rib) decide(p netip.Prefix, e *entry) *fib.Route {
	if e.suspect != 0 || e.partial() {
		return &leave.Route
	}
	if local := r.first(e, tableLocal); local != nil {
		return local
	}
	if len(e.routes) > 0 && len(r.localPrefixes) > 0 && p.Addr().Is6() {
		if shadowed := r.shadowedBy(p); shadowed != nil {
			return shadowed
		}
	}
	if main := r.first(e, tableMain); main != nil {
		return main
	}
	if r.first(e, tableDefault) != nil { // only if nothing of main, not even a shorter prefix, fits
		return &leave.Route
	}
	return nil
}

// partial reports whether a route is for some frames, and for others not. Metrics do not matter then: IPv6 looks for
// the source first, and where it fits none goes on to a shorter prefix (fib6_node_lookup_1()).
func (e *entry) partial() bool {
	return slices.ContainsFunc(e.routes, func(n route) bool { return n.tos != 0 || n.hops.bySource })
}

// first is the answer of one table. Between routes of the same metric the kernel decides by what is in no message:
// their order, whether the gateway answers.
func (r *rib) first(e *entry, t table) *fib.Route {
	var chosen *fib.Route
	var metric uint32
	for _, n := range e.routes {
		if n.table != t {
			continue
		}
		a := r.answer(n.hops)
		switch {
		case a.dead:
		case chosen == nil:
			chosen, metric = &a.Route, n.metric
		case n.metric != metric:
			return chosen
		case !equal(chosen, &a.Route):
			return &leave.Route
		}
	}
	return chosen
}

// answer is worked out once for all routes that lead the same way.
func (r *rib) answer(h *hops) *answer {
	if r.suspects.about(h) {
		return leave
	}
	if h.answer == nil {
		h.answer = r.conclude(h)
	}
	return h.answer
}

func (r *rib) conclude(h *hops) *answer {
	paths, kind := h.paths, h.kind
	if h.object != 0 && kind == fib.Unicast {
		paths, kind = r.objects.resolve(h)
	}
	a := &answer{Route: fib.Route{Kind: kind}}
	if kind != fib.Unicast {
		return a
	}
	for _, p := range paths {
		if !p.dead {
			a.Paths = append(a.Paths, fib.Path{Port: r.ports[p.link], Gateway: p.gateway, Weight: p.weight})
		}
	}
	switch {
	case len(a.Paths) > 0:
	case len(paths) > 0:
		a.dead = true
	default: // a route without a way on is nothing that we know
		return leave
	}
	return a
}

// shadowedBy is the answer of the longest prefix of table local that covers a prefix of table main.
func (r *rib) shadowedBy(p netip.Prefix) *fib.Route {
	for bits := p.Bits() - 1; bits >= 0; bits-- {
		if r.lengths[bits] == 0 {
			continue
		}
		if a := r.localPrefixes[netip.PrefixFrom(p.Addr(), bits).Masked()]; a != nil {
			return a
		}
	}
	return nil
}

// shadow keeps track of the prefixes that shadow others, and settles what changes below them.
func (r *rib) shadow(p netip.Prefix, e *entry) error {
	local := r.first(e, tableLocal)
	if local != nil && (e.suspect != 0 || e.partial()) {
		local = &leave.Route
	}
	was := r.localPrefixes[p]
	switch {
	case local == nil && was == nil, local != nil && was != nil && equal(local, was):
		return nil
	case local == nil:
		delete(r.localPrefixes, p)
		r.lengths[p.Bits()]--
	default:
		r.localPrefixes[p] = local
		if was == nil {
			r.lengths[p.Bits()]++
		}
	}
	for below, e := range r.entries.all(family6) {
		if below.Bits() > p.Bits() && p.Contains(below.Addr()) {
			if err := r.install(below, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// resettle settles all prefixes of which a route meets a condition.
func (r *rib) resettle(concerned func(*hops) bool) error {
	for f := range families {
		for p, e := range r.entries.all(f) {
			for _, n := range e.routes {
				if !concerned(n.hops) {
					continue
				}
				if err := r.settle(p, e); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}
