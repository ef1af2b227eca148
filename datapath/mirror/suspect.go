package mirror

import "net/netip"

// suspects are changes that the kernel may have made, without a notification, to routes that depend on something.
// Frames to the prefixes of such routes are punted until a dump has shown them. The value is the generation of the dump
// that settles it: the first one to begin afterwards.
type suspects struct {
	objects map[uint32]uint32     // routes by this next-hop object: gone, or lead elsewhere
	sources map[netip.Addr]uint32 // routes with this preferred source: gone with the address
	links   map[int]uint32        // paths by this link that were dead: may be alive
}

func newSuspects() suspects {
	return suspects{objects: map[uint32]uint32{}, sources: map[netip.Addr]uint32{}, links: map[int]uint32{}}
}

func (d *suspects) about(h *hops) bool {
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

// settle forgets the suspects that a dump has cleared up, and reports whether there were any.
func (d *suspects) settle(generation uint32) bool {
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

// suspectSource is for an IPv4 address that was deleted: the kernel deletes the routes that prefer it, without an
// event (fib_sync_down_addr()).
func (r *rib) suspectSource(addr netip.Addr) error {
	r.stale = "an address was removed, and perhaps routes with it"
	if r.sources[addr] == 0 { // none is known: only what a dump may still show is suspect
		r.suspects.sources[addr] = r.generation + 1
		return nil
	}
	return suspect(r, r.suspects.sources, addr, func(h *hops) bool { return h.source == addr })
}

// suspectLink is for a link that came or went: dead paths by it may be alive again (fib_sync_up()). Paths that were
// alive are no matter here: they are used only while the link is up.
func (r *rib) suspectLink(link int) error {
	r.stale = "a link has changed, and perhaps routes with it"
	return suspect(r, r.suspects.links, link, r.suspects.about)
}

// suspectObject is for a next-hop object that was replaced or deleted.
func (r *rib) suspectObject(id uint32) error {
	for user := range r.uses {
		if user != id && !r.objects.hasMember(user, id) {
			continue
		}
		r.stale = "a next-hop object has changed, and routes with it"
		if err := suspect(r, r.suspects.objects, user,
			func(h *hops) bool { return h.object == user }); err != nil {
			return err
		}
	}
	return nil
}

func suspect[K comparable](r *rib, all map[K]uint32, k K, concerned func(*hops) bool) error {
	was := all[k]
	all[k] = r.generation + 1
	if was != 0 {
		return nil // settled already
	}
	return r.resettle(concerned)
}
