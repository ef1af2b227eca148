// Package fib writes the mirror: the maps from which the programs know what each router's kernel would do with a frame
// (bpf/fib.h has their layout). It knows nothing of where routes come from.
//
// Whatever changes for a destination changes by one store of 32 or 64 bits into memory that the programs read: they
// see the old answer or the new one. What they may still be looking at is not used again before the kernel has waited
// for them.
package fib

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The bounds of the maps.
const (
	MaxRouters  = 4096 // with number 0, which is none
	MaxNexthops = 65536

	defaultBound = 1 << 30 // bytes of nodes
)

// ErrFull is wrapped by the errors of whatever finds a map full. The answers for all destinations are as before then.
var ErrFull = errors.New("the fast path's memory is full")

// A routerRecord is struct router in bpf/fib.h.
type routerRecord struct {
	root4, root6, slice, space uint32
}

// FIB writes the maps. There is one writer at a time. Its methods may be called concurrently.
type FIB struct {
	*memory
	legs            []legRecord
	routers         []routerRecord
	shortcuts       []shortcut
	possibleSources []uint64
	lease           *uint64
	release         func() error // the maps

	neighbours table[neighbourKey, uint64]
	sources    table[sourceKey, uint32]

	tables sync.Mutex // guards what follows, and writing the tables
	// neighbours in the map: set by a router of this process, or else by an earlier one
	known   map[neighbourKey]bool
	owners  map[sourceKey]map[uint32]bool // of addresses
	left    map[uint32]departure          // by place in shortcuts
	endings map[uint32]int                // how many of owners end so: see possible_sources.go
	earlier map[uint32]bool               // routers of an earlier process
	alone   bool                          // nothing of an earlier process is left
}

// Usage is how much of the maps is in use.
type Usage struct {
	Nodes, NodesBound           int   // trie nodes
	Nexthops, NexthopsBound     int   // next hops of routers
	Neighbours, NeighboursBound int   // on routers' links
	Routers, RoutersBound       int   // with those of an earlier process
	Bytes, BytesBound           int64 // kernel memory for nodes
}

// Close lets go of the maps; what is in them stays in force. Neither it nor its routers may be used afterwards.
func (f *FIB) Close() error {
	if err := f.release(); err != nil {
		return fmt.Errorf("close the mirror's maps: %w", err)
	}
	return nil
}

// Limit bounds the memory for nodes, 1 GiB if nobody says otherwise. What is there already stays.
func (f *FIB) Limit(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bound = int(min(max(bytes, 0)/(chunkNodes*nodeBytes), maxChunks))
}

// Renew makes the programs believe the maps for so long from now.
func (f *FIB) Renew(d time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil { // as bpf_ktime_get_coarse_ns()
		return fmt.Errorf("renew the mirror's lease: %w", err)
	}
	f.store64(f.lease, uint64(max(now.Nano()+int64(d), 0)))
	return nil
}

// Usage says how full the maps are.
func (f *FIB) Usage() Usage {
	f.tables.Lock()
	neighbours := len(f.known)
	f.tables.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	return Usage{
		Nodes: f.nodes.used, NodesBound: f.bound * chunkNodes,
		Nexthops: f.nexthops.used, NexthopsBound: MaxNexthops - hopShared,
		Neighbours: neighbours, NeighboursBound: f.neighbours.bound(),
		Routers: f.ids.used, RoutersBound: MaxRouters - 1,
		Bytes: int64(f.made) * chunkNodes * nodeBytes, BytesBound: int64(f.bound) * chunkNodes * nodeBytes,
	}
}

// Contents is what a router holds.
type contents struct {
	nodes, paths, nexthops []uint32
}

// free gives back what a router held, which no map refers to any more, and then its id.
func (f *FIB) free(id uint32, c contents) {
	f.store32(&f.routers[id].slice, 0)
	f.store32(&f.routers[id].space, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	for s, all := range map[*stock][]uint32{&f.nodes: c.nodes, &f.paths: c.paths, &f.nexthops: c.nexthops,
		&f.ids: {id}} {
		for _, n := range all {
			s.giveBack(n)
		}
	}
}

// add lists a trie's nodes and records.
func (c *contents) add(t trie) { c.addNode(t, t.root) }

func (c *contents) addNode(t trie, n uint32) {
	c.nodes = append(c.nodes, n)
	for i := range t.node(n) {
		e := load(&t.node(n)[i])
		if e.kind() == pathEntry {
			c.paths = append(c.paths, uint32(e))
			e = load(&t.path(e).match)
		}
		if e.kind() == nodeEntry {
			c.addNode(t, e.index())
		}
	}
}
