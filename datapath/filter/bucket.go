package filter

import (
	"fmt"
	"math/bits"
)

// minBuckets is how many there are at least; there are at least half as many as chains, or maxBuckets.
const minBuckets = 16

// A region is buckets, a power of two: those in use, or those that are about to be. Each bucket has marks and slots of
// chains; a chain is filters with the same mask and key.
type region struct {
	*memory
	buckets []bucket
	passed  []uint16 // how many chains each bucket had no slot for
	chains  int      // in all slots
}

// A slotRef is where a chain begins.
type slotRef struct {
	bucket uint32
	slot   int
}

// region is that of so many buckets.
func (m *memory) region(size uint32) *region {
	return &region{memory: m, buckets: m.buckets[size : 2*size], passed: make([]uint16, size)}
}

func (r *region) size() uint32 { return uint32(len(r.buckets)) }

// at is the number of a bucket that the hash leads to, and of those behind it.
func (r *region) at(h hash, probe uint32) uint32 { return (uint32(h) + probe) & (r.size() - 1) }

// locate finds the chain of filters with a mask and a key.
func (r *region) locate(m *mask, k key) (at slotRef, first uint32, ok bool) {
	h := m.hash(k)
	for probe := range uint32(probes) {
		n := r.at(h, probe)
		b := &r.buckets[n]
		for i := range b.slot {
			if lane(b.marks, i) != h.mark() {
				continue
			}
			id, first := splitSlot(b.slot[i])
			if id == m.id && r.keyOf(first) == k {
				return slotRef{n, i}, first, true
			}
		}
		if b.marks&passed == 0 {
			break
		}
	}
	return slotRef{}, 0, false
}

// add puts a chain into the first bucket that has a slot, and reports whether there is one.
func (r *region) add(h hash, slot uint32) bool {
	for probe := range uint32(probes) {
		b := &r.buckets[r.at(h, probe)]
		for i := range b.slot {
			if lane(b.marks, i) != 0 {
				continue
			}
			for p := range probe {
				r.pass(r.at(h, p), 1)
			}
			r.store32(&b.slot[i], slot)
			r.store64(&b.marks, setLane(b.marks, i, h.mark()))
			r.chains++
			return true
		}
	}
	return false
}

// remove frees the slot of a chain that has no filter any more.
func (r *region) remove(at slotRef, h hash) {
	b := &r.buckets[at.bucket]
	r.store64(&b.marks, setLane(b.marks, at.slot, 0))
	r.store32(&b.slot[at.slot], 0)
	r.chains--
	for probe := uint32(0); r.at(h, probe) != at.bucket; probe++ {
		r.pass(r.at(h, probe), -1)
	}
}

// pass notes that a bucket had no slot for a chain, or that one of those chains has gone.
func (r *region) pass(n uint32, change int) {
	b := &r.buckets[n]
	r.passed[n] = uint16(int(r.passed[n]) + change)
	switch {
	case r.passed[n] == 0:
		r.store64(&b.marks, b.marks&^passed)
	case b.marks&passed == 0:
		r.store64(&b.marks, b.marks|passed)
	}
}

// addChain makes a filter the first one of a new chain.
func (f *Filters) addChain(m *mask, k key, n uint32) error {
	if f.chains.chains >= 2*len(f.chains.buckets) && f.chains.size() < maxBuckets {
		if err := f.resize(2 * f.chains.size()); err != nil {
			return err
		}
	}
	for !f.chains.add(m.hash(k), newSlot(m.id, n)) {
		if f.chains.size() == maxBuckets {
			return fmt.Errorf("%w: %d buckets that follow one another are full", ErrFull, probes)
		}
		if err := f.resize(2 * f.chains.size()); err != nil {
			return err
		}
	}
	return nil
}

// oversized reports whether there are many more buckets than chains need.
func (f *Filters) oversized() bool {
	return f.chains.size() > minBuckets && f.chains.chains*4 < len(f.chains.buckets)
}

// shrink makes buckets fewer, where there are many more than chains need.
func (f *Filters) shrink() error {
	if !f.oversized() {
		return nil
	}
	size := uint32(minBuckets)
	for int(size) < f.chains.chains {
		size *= 2
	}
	return f.resize(size)
}

// resize puts all chains into so many buckets, which are other ones, or more where that is not enough. Lookups that
// are under way go on in the old ones: these are used again only after a wait.
func (f *Filters) resize(size uint32) error {
	for ; ; size *= 2 {
		if size > maxBuckets {
			return fmt.Errorf("%w: %d buckets that follow one another are full", ErrFull, probes)
		}
		if left, ok := f.left[bits.Len32(size)]; ok && left == f.waits {
			if err := f.sweep(); err != nil {
				return err
			}
		}
		next := f.region(size)
		clear(next.buckets)
		if f.fill(next) {
			f.left[bits.Len32(f.chains.size())] = f.waits
			f.store32(&f.index.buckets, size)
			f.chains = next
			return nil
		}
	}
}

// fill copies all chains, and reports whether they found room.
func (f *Filters) fill(next *region) bool {
	for i := range f.chains.buckets {
		b := &f.chains.buckets[i]
		for j, slot := range b.slot {
			if lane(b.marks, j) == 0 {
				continue
			}
			id, first := splitSlot(slot)
			if !next.add(f.byID[id].hash(f.keyOf(first)), slot) {
				return false
			}
		}
	}
	return true
}
