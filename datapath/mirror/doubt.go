package mirror

import "net/netip"

// doubts are what the kernel may have done without a word to routes that somehow depend on something. Frames to their
// prefixes are the kernel's until a dump has told. Each has the generation of the dump that settles it: the first to
// begin after the doubt.
type doubts struct {
	objects map[uint32]uint32     // routes by this next-hop object: gone, or lead elsewhere
	sources map[netip.Addr]uint32 // routes with this preferred source: gone with the address
	links   map[int]uint32        // paths by this link that were dead: may be alive
}

func newDoubts() doubts {
	return doubts{objects: map[uint32]uint32{}, sources: map[netip.Addr]uint32{}, links: map[int]uint32{}}
}

func (d *doubts) about(h *hops) bool {
	if len(d.objects) > 0 && h.object != 0 && d.objects[h.object] != 0 {
		return true
	}
	if len(d.sources) > 0 && h.source.IsValid() && d.sources[h.source] != 0 {
		return true
	}
	if len(d.links) > 0 {
		for _, p := range h.paths {
			if p.dead && d.links[p.link] != 0 {
				return true
			}
		}
	}
	return false
}

// settle forgets the doubts that a dump has cleared up, and reports whether there were any.
func (d *doubts) settle(generation uint32) bool {
	before := len(d.objects) + len(d.sources) + len(d.links)
	settle(d.objects, generation)
	settle(d.sources, generation)
	settle(d.links, generation)
	return len(d.objects)+len(d.sources)+len(d.links) != before
}

func settle[K comparable](all map[K]uint32, generation uint32) {
	for k, by := range all {
		if by <= generation {
			delete(all, k)
		}
	}
}

// doubtSource is for an IPv4 address that was deleted: the kernel deletes the routes that prefer it, and tells nobody
// (fib_sync_down_addr()).
func (r *rib) doubtSource(addr netip.Addr) error {
	r.again = "an address was removed, and perhaps routes with it"
	if r.sources[addr] == 0 { // none that is known: only what a dump may still tell is in doubt
		r.doubts.sources[addr] = r.generation + 1
		return nil
	}
	return doubt(r, r.doubts.sources, addr, func(h *hops) bool { return h.source == addr })
}

// doubtLink is for a link that came or went: dead paths by it may be alive again (fib_sync_up()). Paths that were
// alive are no matter here: they are used only while the link is up.
func (r *rib) doubtLink(link int) error {
	r.again = "a link has changed, and perhaps routes with it"
	return doubt(r, r.doubts.links, link, r.doubts.about)
}

// doubtObject is for a next-hop object that was replaced or deleted.
func (r *rib) doubtObject(id uint32) error {
	for user := range r.uses {
		if user != id && !r.objects.hasMember(user, id) {
			continue
		}
		r.again = "a next-hop object has changed, and routes with it"
		if err := doubt(r, r.doubts.objects, user, func(h *hops) bool { return h.object == user }); err != nil {
			return err
		}
	}
	return nil
}

func doubt[K comparable](r *rib, all map[K]uint32, k K, concerned func(*hops) bool) error {
	was := all[k]
	all[k] = r.generation + 1
	if was != 0 {
		return nil // told already
	}
	return r.resettle(concerned)
}
