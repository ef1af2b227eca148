package mirror

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
)

// sink takes what follows from the kernel's state; *fib.Router is one. Ports are the substrate's.
type sink interface {
	SetRoute(netip.Prefix, fib.Route) error
	DeleteRoute(netip.Prefix) error
	SetLeg(port int, leg fib.Leg) error
	DeleteLeg(port int) error
	SetNeighbour(port int, addr netip.Addr, n fib.Neighbour) error
	DeleteNeighbour(port int, addr netip.Addr) error
	SetAddress(netip.Addr) error
	DeleteAddress(netip.Addr) error
}

// rib is the kernel's routes: messages in, what changes for the programs out. It has no clock and does no I/O.
//
// A dump is taken over by difference: begin, all its routes by add, sweep. Events may come in between: each
// before or after what the dump says of the same route.
type rib struct {
	out     sink
	ports   map[int]int // the view's (newView)
	objects objects
	entries index

	// IPv6 routes of table local for more than one address. They shadow longer prefixes of table main, which is
	// asked later; IPv4's tables are one trie as long as nobody adds rules.
	localPrefixes map[netip.Prefix]*fib.Route
	lengths       [129]int // how many localPrefixes have each length

	ruleSensitive int                // how many IPv4 routes are: see ruleSensitive
	uses          map[uint32]int     // of next-hop objects, by routes
	sources       map[netip.Addr]int // preferred by IPv4 routes, and by how many
	generation    uint32             // of the last dump
	touched       touched[routeKey]
	suspects      suspects
	stale         string // why only another dump will settle what an event left open; empty: nothing is open
}

// entry is all routes to one prefix, in the order of preference.
type entry struct {
	routes    []route
	one       [1]route   // where routes begins: few prefixes have more than one
	installed *fib.Route // what the programs have; nil: nothing
	suspect   uint32     // generation of the dump that will show what is true here; 0: none needed
}

func newRIB(out sink, ports map[int]int) *rib {
	return &rib{
		out: out, ports: ports, objects: objects{}, suspects: newSuspects(), uses: map[uint32]int{},
		sources: map[netip.Addr]int{},
		entries: newIndex(), localPrefixes: map[netip.Prefix]*fib.Route{},
	}
}

// begin opens a dump.
func (r *rib) begin() {
	r.generation++
	r.stale = ""
	r.touched.forget()
}

// confirm takes over a route of a dump.
func (r *rib) confirm(p netip.Prefix, n route) error {
	e := r.entry(p)
	// which of the two words is the newer nobody knows: both are kept, one of them is true
	if r.touched.has(n.key(p)) && e.same(n) < 0 {
		r.stale = "a route changed while routes were read"
		e.suspect = r.generation + 1
		return r.insert(p, e, n)
	}
	i, found := r.find(e, n)
	if found == 1 && e.routes[i].generation != r.generation {
		if e.routes[i].hops.expires && !n.hops.expires { // for ever; or it expires just now
			r.stale = "a route does not expire any more"
		}
		return r.replace(p, e, i, n) // it has changed since
	}
	return r.insert(p, e, n)
}

// add takes over a new route from an event. flags are those of the message.
func (r *rib) add(p netip.Prefix, n route, flags uint16) error {
	e := r.entry(p)
	r.prolong(e)
	i, found := r.find(e, n)
	switch {
	case found == 0:
	// perhaps the dump has shown what became of it
	case flags&unix.NLM_F_REPLACE == 0 && r.touched.has(n.key(p)) && e.same(n) < 0:
		r.stale = "a route was added while routes were read"
		e.suspect = r.generation + 1
	case found == 1 && flags&unix.NLM_F_REPLACE != 0:
		return r.replace(p, e, i, n)
	case e.same(n) >= 0:
	case flags&unix.NLM_F_REPLACE != 0:
		r.stale = "one of several routes to a prefix with the same metric was replaced"
		e.suspect = r.generation + 1
	case p.Addr().Is6():
		// Another path of a route that has several comes as the whole route.
		for i, o := range e.routes {
			if o.rival(n) && o.hops.within(n.hops) {
				return r.replace(p, e, i, n)
			}
		}
	}
	return r.insert(p, e, n)
}

// remove takes out a route, by an event.
func (r *rib) remove(p netip.Prefix, gone route) error {
	e := r.entries.get(p)
	if e == nil {
		return nil
	}
	r.prolong(e)
	i, found := r.find(e, gone)
	same := e.same(gone)
	switch {
	case found == 0:
		return nil
	case p.Addr().Is6() && e.with(gone) > 1: // in the kernel only one has such a path: another went unannounced
		return r.suspectPrefix(p, e, "a path of an unknown one of several routes to a prefix was removed")
	case same >= 0:
		return r.drop(p, e, same)
	case p.Addr().Is6():
		// One path of a route that has several: the others stay.
		for i, o := range e.routes {
			if o.rival(gone) && gone.hops.within(o.hops) && len(gone.hops.paths) < len(o.hops.paths) {
				o.hops = o.hops.without(gone.hops)
				return r.replace(p, e, i, o)
			}
		}
	}
	switch {
	case found > 1:
		return r.suspectPrefix(p, e, "an unknown one of several routes to a prefix with the same metric was "+
			"removed")
	// perhaps the dump has shown what was left of it
	case r.touched.has(gone.key(p)) && e.routes[i].generation == r.generation:
		return r.suspectPrefix(p, e, "a route was removed while routes were read")
	}
	return r.drop(p, e, i) // its state has changed since, unannounced
}

// suspectPrefix leaves a prefix to the kernel until another dump.
func (r *rib) suspectPrefix(p netip.Prefix, e *entry, why string) error {
	r.stale = why
	e.suspect = r.generation + 1
	return r.settle(p, e)
}

// prolong is for an event of a suspect prefix: it is not known which of the entry's routes there are, and so which one
// the event means. A dump that is under way may have read before it.
func (r *rib) prolong(e *entry) {
	if e.suspect != 0 {
		r.stale = "a suspect route changed"
		e.suspect = r.generation + 1
	}
}

func (r *rib) entry(p netip.Prefix) *entry {
	e := r.entries.get(p)
	if e == nil {
		e = &entry{}
		e.routes = e.one[:0]
		r.entries.put(p, e)
	}
	return e
}

// find counts the routes that a message without further details could mean, and gives the first.
func (r *rib) find(e *entry, n route) (first, found int) {
	for i, o := range e.routes {
		if !o.rival(n) {
			continue
		}
		if found == 0 {
			first = i
		}
		found++
	}
	return first, found
}

// same finds the very route, by all that a message has; -1: it is not there.
func (e *entry) same(n route) int {
	return slices.IndexFunc(e.routes, func(o route) bool { return o.rival(n) && o.hops.same(n.hops) })
}

// with counts the routes that have all paths of n, and perhaps others.
func (e *entry) with(n route) (count int) {
	for _, o := range e.routes {
		if o.rival(n) && n.hops.within(o.hops) {
			count++
		}
	}
	return count
}

// rival reports whether two routes to a prefix are of the same preference.
func (r route) rival(o route) bool {
	return r.table == o.table && r.tos == o.tos && r.metric == o.metric
}

func (r *rib) insert(p netip.Prefix, e *entry, n route) error {
	n.generation = r.generation
	for i := range e.routes {
		if o := &e.routes[i]; o.rival(n) && o.hops.same(n.hops) {
			o.generation = n.generation
			o.hops = n.hops
			return r.settle(p, e)
		}
	}
	at := len(e.routes)
	for at > 0 && before(n, e.routes[at-1]) {
		at--
	}
	e.routes = slices.Insert(e.routes, at, n)
	r.count(n, 1)
	return r.settle(p, e)
}

func before(a, b route) bool {
	if a.table != b.table {
		return a.table < b.table
	}
	return a.metric < b.metric
}

func (r *rib) replace(p netip.Prefix, e *entry, i int, n route) error {
	r.count(e.routes[i], -1)
	n.generation = r.generation
	e.routes[i] = n
	r.count(n, 1)
	return r.settle(p, e)
}

func (r *rib) drop(p netip.Prefix, e *entry, i int) error {
	r.count(e.routes[i], -1)
	e.routes = slices.Delete(e.routes, i, i+1)
	return r.settle(p, e)
}

func (r *rib) count(n route, by int) {
	if n.hops.ruleSensitive {
		r.ruleSensitive += by
	}
	if a := n.hops.source; a.Is4() {
		if r.sources[a] += by; r.sources[a] == 0 {
			delete(r.sources, a)
		}
	}
	if id := n.hops.object; id != 0 {
		if r.uses[id] += by; r.uses[id] == 0 {
			delete(r.uses, id)
		}
	}
}

// sweep ends a family's dump: what it did not confirm is gone.
func (r *rib) sweep(f family) error {
	for p, e := range r.entries.all(f) {
		changed := e.suspect != 0 && e.suspect <= r.generation
		if changed {
			e.suspect = 0
		}
		for i := len(e.routes) - 1; i >= 0; i-- {
			if e.routes[i].generation != r.generation {
				changed = true
				r.count(e.routes[i], -1)
				e.routes = slices.Delete(e.routes, i, i+1)
			}
		}
		if !changed {
			continue
		}
		if err := r.settle(p, e); err != nil {
			return err
		}
	}
	return nil
}

// end ends a dump of everything: suspects that were there when it began are settled.
func (r *rib) end() error {
	r.touched.forget()
	if !r.suspects.settle(r.generation) {
		return nil
	}
	return r.resettle(func(*hops) bool { return true })
}
