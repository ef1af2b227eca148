package fib

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// SetLabelSpace says in which label space the programs look up what comes to the router with labels (bpf/mpls.h), and
// FTNs. Zero: in none. rules: what it forwards is looked up in that space's rules, too (bpf/label_rule.h).
func (r *Router) SetLabelSpace(space uint32, rules bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("set label space %d: %w", space, errClosed)
	}
	r.fib.store32(&r.fib.routers[r.id].space, space)
	r.space = space
	if rules != r.rules {
		r.rules = rules
		for port, l := range r.legs {
			r.fib.writeLeg(port, l.record(r.id, rules))
		}
	}
	return nil
}

// Labels are the label space, whether it has rules, and the FTNs that were set.
func (r *Router) Labels() (space uint32, rules bool, ftns map[netip.Prefix]uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.space, r.rules, maps.Clone(r.ftns)
}

// SetFTN gives frames to a prefix the labels of an FTN of the router's label space, as long as it has a route to this
// very prefix by next hops, and longer prefixes have none. Zero: they go by the route again. On an error, they get what
// they got before.
func (r *Router) SetFTN(p netip.Prefix, ftn uint32) error {
	p = p.Masked()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.IsValid() {
		return fmt.Errorf("set FTN %d: no prefix", ftn)
	}
	if r.closed {
		return fmt.Errorf("set FTN of %v: %w", p, errClosed)
	}
	if t, ok := r.routes.Get(p); ok {
		if err := r.setRoute(p, t.route.withFTN(ftn)); err != nil {
			return err
		}
	}
	if ftn == 0 {
		delete(r.ftns, p)
	} else {
		r.ftns[p] = ftn
	}
	return nil
}

// Unrouted lists which of some prefixes have an FTN, and no route to this very prefix by next hops: frames to them get
// no labels.
func (r *Router) Unrouted(some []netip.Prefix) (all []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range some {
		if _, has := r.ftns[p]; !has {
			continue
		}
		if t, ok := r.routes.Get(p); !ok || t.route.Kind != Unicast {
			all = append(all, p)
		}
	}
	return all
}

// withFTN is a plain route with this FTN on all its paths. Nearly all routes have none, and get none: they are not
// copied.
func (r Route) withFTN(ftn uint32) Route {
	if r.Kind != Unicast || !slices.ContainsFunc(r.Paths, func(p Path) bool { return p.ftn != ftn }) {
		return r
	}
	paths := make([]Path, len(r.Paths))
	for i, p := range r.Paths {
		p.ftn = ftn
		paths[i] = p
	}
	return Route{Kind: Unicast, Paths: paths}
}

// resolveStation resolves the next hops that are the station: one for each FTN that routes by it have, and one without.
func (r *Router) resolveStation(at station) {
	if h := r.hops[hopKey{station: at}]; h != nil {
		r.resolve(h)
	}
	for _, ftn := range r.ftns {
		if h := r.hops[hopKey{at, ftn}]; h != nil {
			r.resolve(h)
		}
	}
}
