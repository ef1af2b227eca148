package fib

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"

	"github.com/gaissmai/bart"
)

// Router is what the fast path knows of one router. Its methods may be called concurrently with those of other
// routers, and with its own.
type Router struct {
	fib     *FIB
	id      uint32
	slice   uint32
	account *account

	mu         sync.Mutex // guards what follows; taken before those of FIB
	ipv4, ipv6 trie
	routes     bart.Table[*target] // what the tries were made from
	targets    map[targetKey]*target
	hops       map[hopKey]*hop
	byIndex    map[uint32]*hop
	legs       map[int]Leg
	neighbours map[station]Neighbour
	addresses  map[netip.Addr]bool
	space      uint32 // of labels
	rules      bool   // of that space, are asked
	ftns       map[netip.Prefix]uint32
	closed     bool
}

// A station is on a router's link: an address at a port.
type station struct {
	port    int
	address netip.Addr
}

var errClosed = errors.New("the router is closed")

// NewRouter takes a router id that nobody uses. The router has no routes, and is on no fast path until Enable.
func (f *FIB) NewRouter(slice uint32) (*Router, error) {
	id, err := f.newRouterID()
	if err != nil {
		return nil, fmt.Errorf("add router: %w", err)
	}
	r := &Router{
		fib: f, id: id, slice: slice, account: &account{memory: f.memory, router: id},
		targets: map[targetKey]*target{}, hops: map[hopKey]*hop{}, byIndex: map[uint32]*hop{},
		legs: map[int]Leg{}, neighbours: map[station]Neighbour{}, addresses: map[netip.Addr]bool{},
		ftns: map[netip.Prefix]uint32{},
	}
	if r.ipv4, err = newTrie(r.account); err == nil {
		if r.ipv6, err = newTrie(r.account); err != nil {
			r.account.freeNode(r.ipv4.root)
		}
	}
	if err != nil {
		f.giveBack(&f.ids, id)
		return nil, fmt.Errorf("add router: %w", err)
	}
	f.store32(&f.routers[id].slice, slice)
	return r, nil
}

// Number is the id under which the programs know the router, and count its punts.
func (r *Router) Number() uint32 { return r.id }

// Enable puts the router's routes in force, or takes them out, which makes the programs leave its frames to its
// kernel: one store each.
func (r *Router) Enable(ipv4, ipv6 bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("enable router: %w", errClosed)
	}
	root := func(on bool, t trie) uint32 {
		if !on {
			return 0
		}
		return t.root
	}
	record := &r.fib.routers[r.id]
	r.fib.store32(&record.root4, root(ipv4, r.ipv4))
	r.fib.store32(&record.root6, root(ipv6, r.ipv6))
	return nil
}

// SetRoute adds or replaces the route to a prefix.
func (r *Router) SetRoute(p netip.Prefix, route Route) error {
	if !p.IsValid() || route.Kind == None || route.Kind > Other {
		return fmt.Errorf("set route to %v: no prefix, or no kind of route (%d)", p, route.Kind)
	}
	p = p.Masked()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("set route to %v: %w", p, errClosed)
	}
	return r.setRoute(p, route.plain().withFTN(r.ftns[p]))
}

// setRoute takes a plain route. r.mu is held.
func (r *Router) setRoute(p netip.Prefix, route Route) error {
	next, err := r.acquire(route)
	if err != nil {
		return fmt.Errorf("set route to %v: %w", p, err)
	}
	last, _ := r.routes.Get(p)
	if last == next {
		r.release(next)
		return nil
	}
	if err := r.trie(p.Addr()).set(keyOf(p.Addr()), p.Bits(), next.answer); err != nil {
		r.release(next)
		return fmt.Errorf("set route to %v: %w", p, err)
	}
	r.routes.Insert(p, next)
	if last != nil {
		r.release(last)
	}
	return nil
}

// DeleteRoute removes the route to a prefix. It is no error if there is none.
func (r *Router) DeleteRoute(p netip.Prefix) error {
	p = p.Masked()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("delete route to %v: %w", p, errClosed)
	}
	last, ok := r.routes.Get(p)
	if !ok {
		return nil
	}
	r.routes.Delete(p)
	var cover entry
	if shorter, t, ok := r.routes.LookupPrefixLPM(p); ok {
		cover = t.answer.withLength(shorter.Bits())
	}
	r.trie(p.Addr()).delete(keyOf(p.Addr()), p.Bits(), cover)
	r.release(last)
	return nil
}

func (r *Router) trie(a netip.Addr) trie {
	if a.Is4() {
		return r.ipv4
	}
	return r.ipv6
}

// Lookup finds the route to an address as a program would, from the maps, also while the router is not enabled.
// Weights are 256ths.
func (r *Router) Lookup(a netip.Addr) Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !a.IsValid() {
		return Route{}
	}
	return r.routeOf(r.trie(a).lookup(keyOf(a)))
}

// Routes yields what was set, in no order, one way of writing for all that mean the same. The router must not be
// changed meanwhile.
func (r *Router) Routes() iter.Seq2[netip.Prefix, Route] {
	return func(yield func(netip.Prefix, Route) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for p, t := range r.routes.All() {
			if !yield(p, t.route.withFTN(0)) {
				return
			}
		}
	}
}

// Close takes the router out of the maps. What it held is used again when no program can be looking at it any more.
func (r *Router) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for port := range r.legs {
		errs = append(errs, r.deleteLeg(port))
	}
	record := &r.fib.routers[r.id]
	r.fib.store32(&record.root4, 0)
	r.fib.store32(&record.root6, 0)
	for at := range r.neighbours { // on ports that never were legs
		errs = append(errs, r.deleteNeighbour(at))
	}
	for a := range r.addresses {
		errs = append(errs, r.fib.disown(a, r.slice, r.id))
	}
	r.fib.free(r.id, r.contents())
	return errors.Join(errs...)
}

// contents is all that the router holds of the maps' memory.
func (r *Router) contents() contents {
	var all contents
	for _, t := range []trie{r.ipv4, r.ipv6} {
		all.add(t)
	}
	for _, t := range r.targets {
		if t.answer.kind() == groupEntry {
			all.nodes = append(all.nodes, t.answer.index())
		}
	}
	for index := range r.byIndex {
		all.nexthops = append(all.nexthops, index)
	}
	return all
}
