package filter

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Maps are the pinned maps of bpf/filter.h.
type Maps struct {
	Index, Buckets, Chunks, Hits *ebpf.Map
}

// mappings are the maps' memory as this process sees it.
type mappings struct {
	maps   Maps
	first  *ebpf.Map // chunk
	mapped [][]byte
}

// Open adopts the maps, which must stay open until Close, with all tables that an earlier process left in them.
func Open(maps Maps) (*Filters, error) {
	k := &mappings{maps: maps}
	f, err := k.open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the filters' maps: %w", err), k.close())
	}
	return f, nil
}

func (k *mappings) open() (*Filters, error) {
	x, err := mmap[index](k, k.maps.Index)
	if err != nil {
		return nil, err
	}
	b, err := mmap[bucketMemory](k, k.maps.Buckets)
	if err != nil {
		return nil, err
	}
	m := newMemory(k, x, b)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count processors: %w", err)
	}
	stripes := 1
	for stripes < min(cpus, maxStripes) {
		stripes *= 2
	}
	if err := k.adopt(m); err != nil {
		return nil, err
	}
	return open(m, stripes, cpus > stripes, k.close)
}

// adopt maps the chunks that are there.
func (k *mappings) adopt(m *memory) error {
	for ; m.made < maxChunks; m.made++ {
		of, err := k.get(k.maps.Chunks, m.made)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read chunk %d of filters: %w", m.made, err)
		}
		if m.chunks[m.made], err = mmap[chunk](k, of); err != nil {
			return errors.Join(err, of.Close())
		}
		k.release(m.made, of)
		for stripe := range m.stripes() {
			of, err := k.get(k.maps.Hits, stripe*maxChunks+m.made)
			if err != nil {
				return fmt.Errorf("read counters of chunk %d: %w", m.made, err)
			}
			hits, err := mmap[counters](k, of)
			if err := errors.Join(err, of.Close()); err != nil {
				return err
			}
			m.hits[m.made] = append(m.hits[m.made], hits)
		}
	}
	return nil
}

func (k *mappings) get(outer *ebpf.Map, n int) (inner *ebpf.Map, err error) {
	return inner, outer.Lookup(uint32(n), &inner)
}

// release lets go of a chunk, whose memory stays mapped; all but the first, which wait needs.
func (k *mappings) release(n int, of *ebpf.Map) {
	if n == 0 {
		k.first = of
	} else {
		_ = of.Close()
	}
}

// grow puts chunks in place behind their counters: programs that find a chunk find these, too.
func (k *mappings) grow(n, count, stripes int) ([]*chunk, [][]*counters, error) {
	var (
		chunks []*chunk
		hits   [][]*counters
	)
	for i := range count {
		c, h, err := k.growOne(n+i, stripes)
		if err != nil && i == 0 {
			return nil, nil, err
		}
		if err != nil {
			break
		}
		chunks, hits = append(chunks, c), append(hits, h)
	}
	return chunks, hits, k.wait()
}

func (k *mappings) growOne(n, stripes int) (*chunk, []*counters, error) {
	var hits []*counters
	for stripe := range stripes {
		of, err := newArray("filter_hits", int(unsafe.Sizeof(uint64(0))), chunkSize)
		if err != nil {
			return nil, nil, err
		}
		h, err := mmap[counters](k, of)
		if err == nil {
			err = put(k.maps.Hits, stripe*maxChunks+n, of)
		}
		if err := errors.Join(err, of.Close()); err != nil {
			return nil, nil, err
		}
		hits = append(hits, h)
	}
	of, err := newArray("filter_chunk", int(unsafe.Sizeof(chunk{})), 1)
	if err != nil {
		return nil, nil, err
	}
	c, err := mmap[chunk](k, of)
	if err == nil {
		err = put(k.maps.Chunks, n, of)
	}
	if err != nil {
		return nil, nil, errors.Join(err, of.Close())
	}
	k.release(n, of)
	return c, hits, nil
}

func newArray(name string, valueSize, entries int) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(valueSize), MaxEntries: uint32(entries),
		Flags: unix.BPF_F_MMAPABLE,
	})
	if errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return m, err
}

// put puts a map into another one. A batch of one does not wait, as an update does (kernel/bpf/syscall.c,
// maybe_wait_bpf_programs()); what is replaced is none.
func put(outer *ebpf.Map, n int, inner *ebpf.Map) error {
	_, err := outer.BatchUpdate([]uint32{uint32(n)}, []uint32{uint32(inner.FD())}, nil)
	return err
}

// wait relies on what the kernel promises for maps in maps: an update returns when all programs that may see the old
// value have ended (maybe_wait_bpf_programs() in kernel/bpf/syscall.c).
func (k *mappings) wait() error { return k.maps.Chunks.Put(uint32(0), k.first) }

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
func mmap[V any](k *mappings, m *ebpf.Map) (*V, error) {
	var v V
	size := int(m.ValueSize()) * int(m.MaxEntries())
	if size < int(unsafe.Sizeof(v)) {
		return nil, fmt.Errorf("map memory of %v: it has %d bytes, and not %d", m, size, unsafe.Sizeof(v))
	}
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory of %v: %w", m, err)
	}
	k.mapped = append(k.mapped, b)
	return (*V)(unsafe.Pointer(&b[0])), nil
}
