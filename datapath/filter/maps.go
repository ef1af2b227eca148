package filter

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/mapmem"
)

// Maps are the pinned maps of bpf/filter.h.
type Maps struct {
	Index, Buckets, Chunks, Hits *ebpf.Map
}

// mappings are the maps' memory as this process sees it.
type mappings struct {
	mapmem.Memory
	maps Maps
}

// Open adopts the maps, which must stay open until Close, with all tables that an earlier process left in them.
func Open(maps Maps) (*Filters, error) {
	k := &mappings{Memory: mapmem.New(maps.Chunks), maps: maps}
	f, err := k.open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the filters' maps: %w", err), k.Close())
	}
	return f, nil
}

func (k *mappings) open() (*Filters, error) {
	x, err := mapmem.Value[index](&k.Memory, k.maps.Index)
	if err != nil {
		return nil, err
	}
	b, err := mapmem.Value[bucketMemory](&k.Memory, k.maps.Buckets)
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
	return open(m, stripes, cpus > stripes, k.Close)
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
		if m.chunks[m.made], err = mapmem.Value[chunk](&k.Memory, of); err != nil {
			return errors.Join(err, of.Close())
		}
		k.Release(m.made, of)
		for stripe := range m.stripes() {
			of, err := k.get(k.maps.Hits, stripe*maxChunks+m.made)
			if err != nil {
				return fmt.Errorf("read counters of chunk %d: %w", m.made, err)
			}
			hits, err := mapmem.Value[counters](&k.Memory, of)
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
		h, err := mapmem.Value[counters](&k.Memory, of)
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
	c, err := mapmem.Value[chunk](&k.Memory, of)
	if err == nil {
		err = put(k.maps.Chunks, n, of)
	}
	if err != nil {
		return nil, nil, errors.Join(err, of.Close())
	}
	k.Release(n, of)
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

func (k *mappings) wait() error { return k.Wait() }
