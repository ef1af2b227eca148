package fib

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Maps are the pinned maps of bpf/fib.h.
type Maps struct {
	Legs, Routers, Nodes, Nexthops, Neighbours, Shortcuts, Sources, Suspects, Lease *ebpf.Map
}

// mappings are the maps' memory as this process sees it.
type mappings struct {
	nodes  *ebpf.Map
	first  *ebpf.Map // chunk
	mapped [][]byte
}

// Open adopts the maps, which must stay open until Close. Routers of an earlier process stay on the fast path as they
// are, until legs are taken from them by SetLeg or DropLeg and Reclaim frees them.
func Open(maps Maps) (*FIB, error) {
	k := &mappings{nodes: maps.Nodes}
	f, err := k.open(maps)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the mirror's maps: %w", err), k.close())
	}
	return f, nil
}

func (k *mappings) open(maps Maps) (*FIB, error) {
	hops, err := mmap[nexthop](k, maps.Nexthops)
	if err != nil {
		return nil, err
	}
	f := &FIB{
		memory: newMemory(k, hops), release: k.close,
		neighbours: hash[neighbourKey, uint64]{maps.Neighbours}, sources: hash[sourceKey, uint32]{maps.Sources},
	}
	if f.legs, err = mmap[legRecord](k, maps.Legs); err != nil {
		return nil, err
	}
	if f.routers, err = mmap[routerRecord](k, maps.Routers); err != nil {
		return nil, err
	}
	if f.shortcuts, err = mmap[shortcut](k, maps.Shortcuts); err != nil {
		return nil, err
	}
	if f.suspects, err = mmap[uint64](k, maps.Suspects); err != nil {
		return nil, err
	}
	lease, err := mmap[uint64](k, maps.Lease)
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
		m.chunks[m.made], err = mmap[uint32](k, chunk)
		k.release(m.made, chunk)
		if err != nil {
			return err
		}
	}
	return nil
}

// release lets go of a chunk, whose memory stays mapped; all but the first, which wait needs.
func (k *mappings) release(n int, chunk *ebpf.Map) {
	if n == 0 {
		k.first = chunk
	} else {
		_ = chunk.Close()
	}
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
			if memory, failed = mmap[uint32](k, chunk); failed == nil {
				k.release(n+i, chunk)
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

// wait relies on what the kernel promises for maps in maps: an update returns when all programs that may see the old
// value have ended (maybe_wait_bpf_programs() in kernel/bpf/syscall.c).
func (k *mappings) wait() error { return k.nodes.Put(uint32(0), k.first) }

func (k *mappings) close() error {
	var errs []error
	for _, m := range k.mapped {
		errs = append(errs, unix.Munmap(m))
	}
	k.mapped = nil
	if k.first != nil {
		errs = append(errs, k.first.Close())
		k.first = nil
	}
	return errors.Join(errs...)
}

// mmap maps an array's values.
func mmap[V any](k *mappings, m *ebpf.Map) ([]V, error) {
	var v V
	size := int(m.ValueSize()) * int(m.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory of %v: %w", m, err)
	}
	k.mapped = append(k.mapped, b)
	return unsafe.Slice((*V)(unsafe.Pointer(&b[0])), size/int(unsafe.Sizeof(v))), nil
}

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
