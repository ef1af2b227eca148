package mirror

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/datapath/fib"
)

// comparison is of what the programs see with what a view of the kernel, fresh and with nobody's history, has to say.
// While it goes on the mirror follows the kernel as always: nothing is held for longer than a change takes. What
// changes meanwhile may look like a difference.
type comparison struct {
	mirror *session
	kernel *memory
	words  words
	found  []Difference

	unannounced bool // something differs that the kernel does not announce
}

func (c *comparison) add(what, kernel, mirror string) {
	c.found = append(c.found, Difference{what, kernel, mirror})
}

// routes compares what was set.
func (c *comparison) routes(ctx context.Context) error {
	set := make(map[netip.Prefix]fib.Route, len(c.kernel.routes))
	for p, r := range c.mirror.out.Scan() {
		if err := often(ctx, len(set)); err != nil {
			return err
		}
		set[p] = r
	}
	count := 0
	for p, want := range c.kernel.routes {
		if err := often(ctx, count); err != nil {
			return err
		}
		count++
		if have, ok := set[p]; !ok || !want.Same(have) && !c.mirror.leaves(p) && !c.mirror.holds(have) {
			c.add(p.String(), c.words.route(want, true), c.words.route(have, ok))
		}
		delete(set, p)
	}
	for p, have := range set {
		if c.mirror.leaves(p) || c.mirror.holds(have) { // the kernel has dropped it without a word
			continue
		}
		c.add(p.String(), c.words.route(fib.Route{}, false), c.words.route(have, true))
	}
	return nil
}

// often looks whether to go on, once in a while.
func often(ctx context.Context, i int) error {
	if i%1024 != 0 {
		return nil
	}
	return ctx.Err()
}

// leaves reports whether the mirror knows that it does not know: frames to the prefix are the kernel's until a dump
// shows it.
func (s *session) leaves(p netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.view.rib.entries.get(p)
	return e != nil && e.installed == &leave.Route
}

// holds reports whether a route is by a link that is held until a dump. A local one, whose frames are the
// kernel's anyway, may be by any.
func (s *session) holds(r fib.Route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for index, port := range s.view.rib.ports {
		l := s.view.links.all[index]
		by := r.Kind == fib.Local || slices.ContainsFunc(r.Paths,
			func(p fib.Path) bool { return p.Port == port })
		if by && l != nil && l.held != 0 {
			return true
		}
	}
	return false
}

// lookups looks up the first address of every prefix as a program would, in the maps themselves.
func (c *comparison) lookups(ctx context.Context) error {
	lengths := c.kernel.lengths()
	count := 0
	for p := range c.kernel.routes {
		if err := often(ctx, count); err != nil {
			return err
		}
		count++
		addr := p.Addr()
		want := c.kernel.longest(addr, lengths)
		if have := c.mirror.out.Lookup(addr); !want.Same(have) && have.Kind != fib.Other &&
			!c.mirror.holds(have) {
			c.add(addr.String(), c.words.route(want, true), c.words.route(have, true))
		}
	}
	return nil
}

func (c *comparison) legs() {
	s := c.mirror
	s.mu.Lock()
	defer s.mu.Unlock()
	for index, port := range s.view.rib.ports {
		want, there := c.kernel.legs[port]
		l := s.view.links.all[index]
		if !there || !s.view.links.live || l != nil && l.held != 0 {
			continue
		}
		if now := c.words.view.links.all[index]; l != nil && now != nil && now.mtu6 != l.mtu6 {
			c.unannounced = true // and so no fault of the mirror's
			continue
		}
		if have, ok := s.view.links.published[port]; !ok || want != have {
			c.add("interface "+c.words.link(port), leg(want, true), leg(have, ok))
		}
	}
}

func (c *comparison) neighbours() {
	what := func(k neighbourKey) string { return "neighbour " + k.addr.String() + " dev " + c.words.link(k.link) }
	for k, want := range c.kernel.neighbours {
		have, ok := c.mirror.out.LookupNeighbour(k.link, k.addr)
		if !ok || have.MAC != want.MAC { // stale or not: the programs themselves change that
			c.add(what(k), mac(want, true), mac(have, ok))
		}
	}
	for _, k := range c.mirror.neighbours() {
		if _, ok := c.kernel.neighbours[k]; ok {
			continue
		}
		if have, ok := c.mirror.out.LookupNeighbour(k.link, k.addr); ok {
			c.add(what(k), "has none", mac(have, true))
		}
	}
}

// neighbours are those that the mirror knows, by port.
func (s *session) neighbours() []neighbourKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]neighbourKey, 0, len(s.view.neighbours.all))
	for k := range s.view.neighbours.all {
		if port := s.view.rib.ports[k.link]; port != 0 {
			keys = append(keys, neighbourKey{port, k.addr})
		}
	}
	return keys
}
