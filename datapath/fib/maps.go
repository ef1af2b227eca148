package fib

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/mapmem"
)

// Maps are the pinned maps of bpf/fib.h.
type Maps struct {
	Legs, Routers, Nodes, Nexthops, Neighbours, Shortcuts, Sources, PossibleSources, Lease *ebpf.Map
}

// mappings are the maps' memory as this process sees it.
type mappings struct {
	mapmem.Memory
	nodes *ebpf.Map
}

// Open adopts the maps, which must stay open until Close. Routers of an earlier process stay on the fast path as they
// are, until legs are taken from them by SetLeg or DropLeg and Reclaim frees them.
func Open(maps Maps) (*FIB, error) {
	k := &mappings{Memory: mapmem.New(maps.Nodes), nodes: maps.Nodes}
	f, err := k.open(maps)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the mirror's maps: %w", err), k.Close())
	}
	return f, nil
}

func (k *mappings) open(maps Maps) (*FIB, error) {
	hops, err := mapmem.Values[nexthop](&k.Memory, maps.Nexthops)
	if err != nil {
		return nil, err
	}
	f := &FIB{
		memory: newMemory(k, hops), release: k.Close,
		neighbours: hash[neighbourKey, uint64]{maps.Neighbours}, sources: hash[sourceKey, uint32]{maps.Sources},
	}
	if f.legs, err = mapmem.Values[legRecord](&k.Memory, maps.Legs); err != nil {
		return nil, err
	}
	if f.routers, err = mapmem.Values[routerRecord](&k.Memory, maps.Routers); err != nil {
		return nil, err
	}
	if f.shortcuts, err = mapmem.Values[shortcut](&k.Memory, maps.Shortcuts); err != nil {
		return nil, err
	}
	if f.possibleSources, err = mapmem.Values[uint64](&k.Memory, maps.PossibleSources); err != nil {
		return nil, err
	}
	lease, err := mapmem.Values[uint64](&k.Memory, maps.Lease)
	if err != nil {
		return nil, err
	}
	f.lease = &lease[0]
	if err := k.adopt(f.memory); err != nil {
		return nil, err
	}
	return f, f.adopt()
}

// adopt maps the chunks that are there.
func (k *mappings) adopt(m *memory) error {
	for ; m.made < maxChunks; m.made++ {
		var chunk *ebpf.Map
		err := k.nodes.Lookup(uint32(m.made), &chunk)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read chunk %d of nodes: %w", m.made, err)
		}
		m.chunks[m.made], err = mapmem.Values[uint32](&k.Memory, chunk)
		k.Release(m.made, chunk)
		if err != nil {
			return err
		}
	}
	return nil
}

// grow puts all chunks in place at once: each waits (see wait), and so they wait together.
func (k *mappings) grow(n, count int) ([][]uint32, error) {
	var puts sync.WaitGroup
	chunks, errs := make([]*ebpf.Map, count), make([]error, count)
	for i := range count {
		puts.Go(func() { chunks[i], errs[i] = k.put(n + i) })
	}
	puts.Wait()
	var (
		all    [][]uint32
		failed error
	)
	for i, chunk := range chunks {
		failed = cmp.Or(failed, errs[i])
		if failed == nil {
			var memory []uint32
			if memory, failed = mapmem.Values[uint32](&k.Memory, chunk); failed == nil {
				k.Release(n+i, chunk)
				all = append(all, memory)
				continue
			}
		}
		if chunk != nil { // behind one that failed: chunks are in place without gaps
			failed = errors.Join(failed, k.nodes.Delete(uint32(n+i)), chunk.Close())
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, failed
}

// put makes a chunk and puts it in place.
func (k *mappings) put(n int) (*ebpf.Map, error) {
	chunk, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "fib_chunk", Type: ebpf.Array, KeySize: 4, ValueSize: nodeBytes, MaxEntries: chunkNodes,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil {
		return nil, err
	}
	if err := k.nodes.Put(uint32(n), chunk); err != nil {
		return nil, errors.Join(err, chunk.Close())
	}
	return chunk, nil
}

func (k *mappings) wait() error { return k.Wait() }

// hash is a table in the kernel.
type hash[K comparable, V any] struct{ m *ebpf.Map }

func (h hash[K, V]) bound() int { return int(h.m.MaxEntries()) }

func (h hash[K, V]) put(k K, v V) error {
	err := h.m.Put(&k, &v)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("%w: all %d are in use", ErrFull, h.bound())
	}
	return err
}

func (h hash[K, V]) drop(k K) error {
	if err := h.m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (h hash[K, V]) get(k K) (v V, ok bool) {
	ok = h.m.Lookup(&k, &v) == nil
	return v, ok
}

func (h hash[K, V]) all() (map[K]V, error) {
	var (
		k   K
		v   V
		all = map[K]V{}
		at  = h.m.Iterate()
	)
	for at.Next(&k, &v) {
		all[k] = v
	}
	return all, at.Err()
}
