package fib

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// adopt finds out what an earlier process left: what routers and legs still refer to is in use, everything else is
// free.
func (f *FIB) adopt() error {
	if f.made == 0 {
		if err := f.grow(); err != nil { // the first chunk, of which wait makes use
			return err
		}
	} else if err := f.kernel.wait(); err != nil { // for what the earlier process had just given back
		return fmt.Errorf("wait for the programs that run: %w", err)
	}
	for i, kind := range constants {
		f.store64(&f.hops[i].to, adjacency(kind, [6]byte{}))
	}
	f.earlier = map[uint32]bool{}
	for i := range f.legs {
		if id := f.legs[i].owner(); id != 0 {
			f.earlier[id] = true
		} else if f.legs[i].link != 0 && f.legs[i].isRouters() { // half made, or half unmade
			f.clearLeg(i)
		}
	}
	used := contents{}
	for id := range f.routers {
		r := &f.routers[id]
		if id == 0 || !f.earlier[uint32(id)] && r.root4 == 0 && r.root6 == 0 {
			continue
		}
		f.earlier[uint32(id)] = true
		c, err := f.find(r)
		if err != nil { // then the kernel forwards for it
			f.store32(&r.root4, 0)
			f.store32(&r.root6, 0)
			continue
		}
		used.nodes = append(used.nodes, c.nodes...)
		used.paths = append(used.paths, c.paths...)
		used.nexthops = append(used.nexthops, c.nexthops...)
	}
	f.restock(used)
	return f.adoptTables()
}

// restock fills the stocks with everything but what is used.
func (f *FIB) restock(used contents) {
	nodes, hops := set(f.made*chunkNodes, used.nodes), set(len(f.hops), used.nexthops)
	records := map[uint32]uint32{} // used ones of each node, as bits
	for _, p := range used.paths {
		records[entry(p).index()] |= 1 << entry(p).record()
	}
	f.nodes.free, f.nodes.used = nil, len(used.nodes)+len(records)
	f.paths.free, f.paths.used = nil, len(used.paths)
	f.nexthops.free, f.nexthops.used = nil, len(used.nexthops)
	f.ids.free, f.ids.used = nil, len(f.earlier)
	for n := f.made*chunkNodes - 1; n > 0; n-- {
		bits, ofRecords := records[uint32(n)]
		for i := range nodePaths {
			if ofRecords && bits&(1<<i) == 0 {
				f.paths.free = append(f.paths.free,
					uint32(newEntry(pathEntry, uint32(n)).withLength(i)))
			}
		}
		if !nodes[n] && !ofRecords {
			f.nodes.free = append(f.nodes.free, uint32(n))
		}
	}
	for n := len(f.hops) - 1; n >= hopShared; n-- {
		if !hops[n] {
			f.nexthops.free = append(f.nexthops.free, uint32(n))
		}
	}
	for id := len(f.routers) - 1; id > 0; id-- {
		if !f.earlier[uint32(id)] {
			f.ids.free = append(f.ids.free, uint32(id))
		}
	}
}

func set(size int, members []uint32) []bool {
	all := make([]bool, size)
	for _, n := range members {
		all[n] = true
	}
	return all
}

func (f *FIB) adoptTables() error {
	neighbours, err := f.neighbours.all()
	if err != nil {
		return fmt.Errorf("read neighbours: %w", err)
	}
	f.known = map[neighbourKey]bool{}
	for k := range neighbours {
		f.known[k] = false
	}
	f.adoptShortcuts(neighbours)
	sources, err := f.sources.all()
	if err != nil {
		return fmt.Errorf("read addresses of routers: %w", err)
	}
	f.owners = map[sourceKey]map[uint32]bool{}
	for k, id := range sources {
		if f.earlier[id] || id == many && len(f.earlier) > 0 {
			f.owners[k] = map[uint32]bool{id: true}
		} else if err := f.sources.drop(k); err != nil {
			return fmt.Errorf("forget an address of a router that is gone: %w", err)
		}
	}
	f.addAllPossible()
	return nil
}

// find lists what a router of an earlier process holds. It is an error if that makes no sense.
func (f *FIB) find(r *routerRecord) (contents, error) {
	s := search{memory: f.memory, seen: map[uint32]bool{}}
	for _, root := range []uint32{atomic.LoadUint32(&r.root4), atomic.LoadUint32(&r.root6)} {
		if root != 0 {
			s.node(root)
		}
	}
	return s.contents, s.err
}

// A search goes through tries of which nothing is known.
type search struct {
	*memory
	contents
	seen map[uint32]bool // nodes; next hops, as entries of type leaf
	err  error
}

var errNonsense = errors.New("a trie in the maps makes no sense")

// first reports whether a node comes up for the first time, and is one.
func (s *search) first(n uint32) bool {
	key := uint32(newEntry(nodeEntry, n))
	if n == 0 || int(n) >= s.made*chunkNodes {
		s.err = errNonsense
	}
	if s.seen[key] || s.err != nil {
		return false
	}
	s.seen[key] = true
	return true
}

func (s *search) node(n uint32) {
	if !s.first(n) {
		s.err = errNonsense // a trie has one way to each node
		return
	}
	s.contents.nodes = append(s.contents.nodes, n)
	for i := range s.memory.node(n) {
		s.entry(load(&s.memory.node(n)[i]))
	}
}

func (s *search) entry(e entry) {
	switch {
	case s.err != nil:
	case e.kind() == nodeEntry:
		s.node(e.index())
	case e.kind() == groupEntry:
		if s.first(e.index()) {
			s.contents.nodes = append(s.contents.nodes, e.index())
			for i := range s.memory.node(e.index()) {
				s.leaf(load(&s.memory.node(e.index())[i]))
			}
		}
	case e.kind() == pathEntry:
		if s.seen[uint32(e)] || e.record() >= nodePaths || e.index() == 0 ||
			int(e.index()) >= s.made*chunkNodes {
			s.err = errNonsense
			return
		}
		s.seen[uint32(e)] = true
		s.contents.paths = append(s.contents.paths, uint32(e))
		s.entry(load(&s.path(e).miss))
		s.entry(load(&s.path(e).match))
	default:
		s.leaf(e)
	}
}

func (s *search) leaf(e entry) {
	n := e.index()
	if e.kind() != leafEntry || int(n) >= len(s.hops) {
		s.err = errNonsense
		return
	}
	if n >= hopShared && !s.seen[n] {
		s.seen[n] = true
		s.contents.nexthops = append(s.contents.nexthops, n)
	}
}

// Earlier names the ports whose legs still refer to a router of an earlier process.
func (f *FIB) Earlier() []int {
	f.tables.Lock()
	defer f.tables.Unlock()
	var ports []int
	for i := range f.legs {
		if f.earlier[f.legs[i].owner()] {
			ports = append(ports, i)
		}
	}
	return ports
}

// DropLeg takes a leg away that a router of an earlier process has, with all its neighbours: for ports that are new,
// or gone.
func (f *FIB) DropLeg(port int) error {
	if port <= 0 || port >= len(f.legs) {
		return nil
	}
	f.tables.Lock()
	if f.earlier[f.legs[port].owner()] {
		f.clearLeg(port)
	}
	f.tables.Unlock()
	if err := f.forgetNeighbours(port); err != nil {
		return fmt.Errorf("drop leg %d: %w", port, err)
	}
	return nil
}

// Reclaim frees the routers of an earlier process to which no leg refers any more.
func (f *FIB) Reclaim() error {
	f.tables.Lock()
	alone := f.alone
	f.tables.Unlock()
	if alone { // as it is for most of a process's life
		return nil
	}
	ports := f.Earlier()
	f.tables.Lock()
	defer f.tables.Unlock()
	var kept []uint32
	for _, port := range ports {
		kept = append(kept, f.legs[port].owner())
	}
	gone := map[uint32]bool{}
	for id := range f.earlier {
		if !slices.Contains(kept, id) {
			f.reclaim(id)
			gone[id] = true
		}
	}
	gone[many] = len(f.earlier) == 0
	var errs []error
	for k, ours := range f.known {
		if !ours && !slices.Contains(ports, int(k.Port)) {
			errs = append(errs, f.forget(k))
		}
	}
	for k, owners := range f.owners {
		errs = append(errs, f.reclaimAddress(k, owners, gone))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reclaim what an earlier process left: %w", err)
	}
	f.alone = len(f.earlier) == 0
	return nil
}

func (f *FIB) reclaim(id uint32) {
	r := &f.routers[id]
	all, err := f.find(r)
	if err != nil { // it made sense when it was adopted
		all = contents{}
	}
	f.store32(&r.root4, 0)
	f.store32(&r.root6, 0)
	delete(f.earlier, id)
	f.free(id, all)
}

// reclaimAddress takes routers that are gone from an address's owners. Which routers MANY stood for in an earlier
// process is not known: they stay until all its routers are gone.
func (f *FIB) reclaimAddress(k sourceKey, owners, gone map[uint32]bool) error {
	before := len(owners)
	maps.DeleteFunc(owners, func(id uint32, _ bool) bool { return gone[id] })
	if len(owners) == before {
		return nil
	}
	return f.writeOwners(k)
}
