package fib

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	chunkNodes  = 1024
	nodeEntries = 256
	nodePaths   = 32 // records in a node
	nodeBytes   = 4 * nodeEntries
	maxChunks   = 2048
)

type node = [nodeEntries]uint32

// A path stands in for a chain of nodes with nothing else in them (struct path in bpf/fib.h). key and length never
// change while programs can find the record.
type path struct {
	key         key
	length      uint32 // of the part of key that counts
	match, miss uint32 // entries
	_           uint32
}

// A nexthop is how a router sends to one neighbour, or to all of a link (struct nexthop in bpf/fib.h).
type nexthop struct {
	to   uint64 // union adjacency
	port uint32
	ftn  uint32
}

// kernel is what memory needs of the maps.
type kernel interface {
	// grow puts so many chunks in place, the first as number n, or at least one, and gives their memory, all zero.
	// On return no program runs that was running before.
	grow(n, count int) ([][]uint32, error)
	// wait returns when no program runs any more that was running before.
	wait() error
}

// memory hands out nodes, records of paths, next hops and router ids. What is given back may still be looked at by
// programs: it rests until the kernel has waited for them, which is done for many at once.
type memory struct {
	kernel kernel
	chunks [maxChunks][]uint32 // node n is in chunk n / chunkNodes; a chunk once there stays
	hops   []nexthop
	stored func() // tests look at every state

	mu       sync.Mutex // guards what follows; taken last
	made     int        // chunks
	bound    int        // of made
	nodes    stock
	paths    stock // of entries
	nexthops stock
	ids      stock // of routers
	waits    int   // that have ended
}

// A stock is what can be handed out: now, or after the next wait.
type stock struct {
	name       string
	used       int
	free, rest []uint32
}

func (s *stock) take() uint32 {
	last := len(s.free) - 1
	n := s.free[last]
	s.free = s.free[:last]
	s.used++
	return n
}

func (s *stock) giveBack(n uint32) {
	s.rest = append(s.rest, n)
	s.used--
}

func (s *stock) rested() {
	s.free = append(s.free, s.rest...)
	s.rest = s.rest[:0]
}

func newMemory(k kernel, hops []nexthop) *memory {
	m := &memory{kernel: k, hops: hops, bound: defaultBound / (chunkNodes * nodeBytes)}
	m.nodes.name, m.paths.name, m.nexthops.name, m.ids.name = "nodes", "nodes", "nexthops", "routers"
	return m
}

// node is the memory of a node of entries.
func (m *memory) node(n uint32) *node {
	at := n % chunkNodes * nodeEntries
	return (*node)(m.chunks[n/chunkNodes][at : at+nodeEntries])
}

// load and store are how entries are read and written where programs may find them.
func load(at *uint32) entry { return entry(atomic.LoadUint32(at)) }

func (m *memory) store(at *uint32, e entry) { m.store32(at, uint32(e)) }

// store32 and store64 are how everything is written that programs may see.
func (m *memory) store32(at *uint32, v uint32) {
	atomic.StoreUint32(at, v)
	if m.stored != nil {
		m.stored()
	}
}

func (m *memory) store64(at *uint64, v uint64) {
	atomic.StoreUint64(at, v)
	if m.stored != nil {
		m.stored()
	}
}

// takeNode grows rather than waits while little rests: growing is as good as waiting.
func (m *memory) takeNode() (uint32, error) {
	if len(m.nodes.free) == 0 && len(m.nodes.rest) < chunkNodes && m.made < m.bound {
		if err := m.grow(); err != nil && len(m.nodes.rest) == 0 {
			return 0, err
		}
	}
	if err := m.await(&m.nodes); err != nil {
		return 0, fmt.Errorf("%w (%d MiB)", err, m.bound*chunkNodes*nodeBytes>>20)
	}
	return m.nodes.take(), nil
}

// grow adds a quarter to the chunks that are there: so there are few waits on the way to a million routes.
func (m *memory) grow() error {
	count := min(1+m.made/4, m.bound-m.made)
	chunks, err := m.kernel.grow(m.made, count)
	if err != nil {
		return fmt.Errorf("add %d chunks of nodes to %d: %w", count, m.made, err)
	}
	for _, chunk := range chunks {
		m.chunks[m.made] = chunk
		for i := chunkNodes - 1; i >= 0; i-- {
			if n := uint32(m.made*chunkNodes + i); n != 0 { // node 0 is no node
				m.nodes.free = append(m.nodes.free, n)
			}
		}
		m.made++
	}
	m.rested()
	return nil
}

// await makes sure that something is free.
func (m *memory) await(s *stock) error {
	if len(s.free) > 0 {
		return nil
	}
	if len(s.rest) == 0 {
		return fmt.Errorf("%w: map %s: all %d are in use", ErrFull, s.name, s.used)
	}
	return m.wait()
}

// waited counts the waits. Whoever finds more than before knows that one began and ended in between.
func (m *memory) waited() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waits
}

// wait makes free what rests.
func (m *memory) wait() error {
	if err := m.kernel.wait(); err != nil {
		return fmt.Errorf("wait for the programs that run: %w", err)
	}
	m.rested()
	return nil
}

func (m *memory) rested() {
	m.waits++
	for _, s := range []*stock{&m.nodes, &m.paths, &m.nexthops, &m.ids} {
		s.rested()
	}
}

// takePath carves nodes, which never come back: records are all they are good for.
func (m *memory) takePath() (entry, error) {
	if len(m.paths.free) == 0 && len(m.paths.rest) < chunkNodes {
		n, err := m.takeNode()
		if err != nil && len(m.paths.rest) == 0 {
			return 0, err
		}
		for i := range nodePaths {
			if err == nil {
				m.paths.free = append(m.paths.free, uint32(newEntry(pathEntry, n).withLength(i)))
			}
		}
	}
	if err := m.await(&m.paths); err != nil {
		return 0, err
	}
	return entry(m.paths.take()), nil
}

func (m *memory) giveBack(s *stock, n uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.giveBack(n)
}

// path is the record that an entry refers to.
func (m *memory) path(e entry) *path {
	return (*path)(unsafe.Pointer(&m.node(e.index())[int(e.record())*nodeEntries/nodePaths]))
}

func (m *memory) newRouterID() (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.await(&m.ids); err != nil {
		return 0, err
	}
	return m.ids.take(), nil
}
