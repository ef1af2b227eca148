package sliver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/pergola-net/pergola/i3/fastpath/layout"
)

// takeMemory makes a block of memory the one that is written. The program that reads it has other filters, perhaps.
func (f *FastPath) takeMemory(m Memory) error {
	old := f.memory
	f.memory = nil
	f.fallBehind(true)
	if old != nil {
		if err := old.Close(); err != nil {
			return fmt.Errorf("close the memory of the program before: %w", err)
		}
	}
	for i := range 1 + layout.Rings {
		if n := len(m.At(i)); n != layout.Size {
			return fmt.Errorf(
				"use the packet program: element %d of its memory has %d bytes and not %d: the "+
					"node's program is not the i3.c of this version",
				i,
				n,
				layout.Size,
			)
		}
	}
	f.memory = m
	for i := range layout.Rings { // versions are never those of an earlier process
		f.version = max(f.version, atomic.LoadUint64(f.word(1+i)))
	}
	f.turnOff()
	return nil
}

// word is the first word of an element.
func (f *FastPath) word(element int) *uint64 {
	return (*uint64)(unsafe.Pointer(&f.memory.At(element)[0]))
}

// turnOff makes the program punt all.
func (f *FastPath) turnOff() {
	if f.memory != nil {
		atomic.StoreUint64(f.word(0), 0)
	}
	f.ring = nil
}

// writeRing writes the ring that is not in use, and then makes it the one in use. Programs that still read it, because
// they began before the change before this one, see that its version is another one, and punt.
func (f *FastPath) writeRing() {
	ring := f.node.Ring(&f.routes)
	if f.behind || f.memory == nil || bytes.Equal(ring, f.ring) {
		return
	}
	const head = 8
	f.active = 1 + f.active%layout.Rings
	element := f.memory.At(f.active)
	atomic.StoreUint64(f.word(f.active), 0)
	for i := head; i < len(ring); i += head {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&element[i])), binary.NativeEndian.Uint64(ring[i:]))
	}
	f.version++
	atomic.StoreUint64(f.word(f.active), f.version)
	atomic.StoreUint64(f.word(0), uint64(f.active))
	f.ring = ring
}
