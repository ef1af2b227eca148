package fib

import (
	"encoding/binary"
	"sync/atomic"
)

// suspectBits is SUSPECTS in bpf/fib.h. Programs look for an address in map sources only if the bit of its ending is
// set: it is set before the first address that ends so comes into the map, and cleared after the last has left.
const suspectBits = 1 << 19

func (k sourceKey) ending() uint32 { return binary.BigEndian.Uint32(k.Address[:]) % suspectBits }

// suspect notes an address that comes into map sources. f.tables is held.
func (f *FIB) suspect(k sourceKey) {
	end := k.ending()
	f.endings[end]++
	f.markSuspects(end/64, f.suspects[end/64]|1<<(end%64))
}

// clear notes that it has left.
func (f *FIB) clear(k sourceKey) {
	end := k.ending()
	if f.endings[end]--; f.endings[end] > 0 {
		return
	}
	delete(f.endings, end)
	f.markSuspects(end/64, f.suspects[end/64]&^(1<<(end%64)))
}

// suspectAll sets all bits anew, as map sources is.
func (f *FIB) suspectAll() {
	f.endings = map[uint32]int{}
	words := map[uint32]uint64{}
	for k := range f.owners {
		end := k.ending()
		f.endings[end]++
		words[end/64] |= 1 << (end % 64)
	}
	for i := range f.suspects {
		f.markSuspects(uint32(i), words[uint32(i)])
	}
}

func (f *FIB) markSuspects(word uint32, bits uint64) {
	if at := &f.suspects[word]; atomic.LoadUint64(at) != bits {
		f.store64(at, bits)
	}
}
