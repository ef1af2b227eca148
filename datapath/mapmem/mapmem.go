// Package mapmem is for maps that programs read while user space writes them in its own memory: arrays that are mapped
// into the process, and chunks, the arrays that a map in maps gets one after the other.
package mapmem

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Memory is the memory of some maps as this process sees it. The zero value has no chunks.
type Memory struct {
	chunks *ebpf.Map // the map in maps
	first  *ebpf.Map // chunk
	mapped [][]byte
}

// New gives the memory of maps of which this one has chunks. It must stay open until Close.
func New(chunks *ebpf.Map) Memory { return Memory{chunks: chunks} }

// Values maps the values of an array.
func Values[V any](m *Memory, array *ebpf.Map) ([]V, error) {
	var v V
	b, err := m.mmap(array, int(unsafe.Sizeof(v)))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*V)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(v))), nil
}

// Value maps all values of an array as one.
func Value[V any](m *Memory, array *ebpf.Map) (*V, error) {
	var v V
	b, err := m.mmap(array, int(unsafe.Sizeof(v)))
	if err != nil {
		return nil, err
	}
	return (*V)(unsafe.Pointer(&b[0])), nil
}

// mmap gives the bytes of an array's values, which must be so many at least.
func (m *Memory) mmap(array *ebpf.Map, least int) ([]byte, error) {
	size := int(array.ValueSize()) * int(array.MaxEntries())
	if size < least {
		return nil, fmt.Errorf("map memory of %v: it has %d bytes, and not %d", array, size, least)
	}
	page := unix.Getpagesize()
	b, err := unix.Mmap(array.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory of %v: %w", array, err)
	}
	m.mapped = append(m.mapped, b)
	return b[:size], nil
}

// Mapped counts the arrays that are mapped.
func (m *Memory) Mapped() int { return len(m.mapped) }

// Release lets go of a chunk, whose memory stays mapped; all but the first, which Wait needs.
func (m *Memory) Release(number int, chunk *ebpf.Map) {
	if number == 0 {
		m.first = chunk
	} else {
		_ = chunk.Close()
	}
}

// Wait returns when no program runs any more that was running before. It relies on what the kernel promises for maps in
// maps: an update returns when all programs that may see the old value have ended (maybe_wait_bpf_programs() in
// kernel/bpf/syscall.c). The first chunk must be there.
func (m *Memory) Wait() error { return m.chunks.Put(uint32(0), m.first) }

// WaitForPrograms returns when no program runs any more that was running before, whatever maps it reads: by
// membarrier(2), whose command for all processes is synchronize_rcu() in the kernel.
func WaitForPrograms() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return fmt.Errorf("wait for programs: %w", errno)
	}
	return nil
}

// Close lets go of all memory.
func (m *Memory) Close() error {
	var errs []error
	for _, b := range m.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	m.mapped = nil
	if m.first != nil {
		errs = append(errs, m.first.Close())
		m.first = nil
	}
	return errors.Join(errs...)
}
