package fib

import (
	"encoding/binary"
	"sync/atomic"
)

// possibleBits is POSSIBLE_SOURCES in bpf/fib.h. Programs look for an address in map sources only if the bit of its
// ending is set: it is set before the first address that ends so comes into the map, and cleared after the last has
// left.
const possibleBits = 1 << 19

func (k sourceKey) ending() uint32 { return binary.BigEndian.Uint32(k.Address[:]) % possibleBits }

// addPossible notes an address that comes into map sources. f.tables is held.
func (f *FIB) addPossible(k sourceKey) {
	end := k.ending()
	f.endings[end]++
	f.markPossible(end/64, f.possibleSources[end/64]|1<<(end%64))
}

// clearPossible notes that it has left.
func (f *FIB) clearPossible(k sourceKey) {
	end := k.ending()
	if f.endings[end]--; f.endings[end] > 0 {
		return
	}
	delete(f.endings, end)
	f.markPossible(end/64, f.possibleSources[end/64]&^(1<<(end%64)))
}

// addAllPossible sets all bits anew, as map sources is.
func (f *FIB) addAllPossible() {
	f.endings = map[uint32]int{}
	words := map[uint32]uint64{}
	for k := range f.owners {
		end := k.ending()
		f.endings[end]++
		words[end/64] |= 1 << (end % 64)
	}
	for i := range f.possibleSources {
		f.markPossible(uint32(i), words[uint32(i)])
	}
}

func (f *FIB) markPossible(word uint32, bits uint64) {
	if at := &f.possibleSources[word]; atomic.LoadUint64(at) != bits {
		f.store64(at, bits)
	}
}
