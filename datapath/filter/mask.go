package filter

import (
	"container/heap"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
)

// A mask is one of those that a table's filters have.
type mask struct {
	table   *Table
	id      uint32
	seed    uint64
	word    key
	filters []uint32 // in its chains, with those that were deleted
	live    int      // of these
	ranks   ranks
	place   int // in the order of the table; -1: not in it
}

func (m *mask) hash(k key) hash {
	return m.table.filters.index.hash(m.seed, k, hashedWords(m.table.bytes))
}

// newMask makes a mask that no filter has, and puts it at the end of the table's order.
func (t *Table) newMask(word key) (*mask, error) {
	f := t.filters
	for tries := 0; tries < 2 && (len(t.places) == MaxTableMasks || len(f.ids.free) == 0); tries++ {
		if err := f.sweep(); err != nil { // some may be of no use any more
			return nil, err
		}
		f.reorderAll()
	}
	if len(f.ids.free) == 0 {
		return nil, fmt.Errorf("%w: all %d masks are in use", ErrFull, MaxMasks-1)
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // it never fails
	m := &mask{table: t, word: word, seed: binary.NativeEndian.Uint64(seed[:]), place: -1, id: f.ids.take()}
	if err := f.appendMask(t, m); err != nil {
		f.ids.giveBack(m.id)
		return nil, err
	}
	t.masks[word], f.byID[m.id] = m, m
	return m, nil
}

// drop gives up a mask that no filter has, and that is no longer in the order.
func (m *mask) drop() {
	f := m.table.filters
	delete(m.table.masks, m.word)
	f.byID[m.id] = nil
	f.ids.giveBack(m.id)
}

// alive changes how many of the mask's filters have not been deleted.
func (m *mask) alive(change int) {
	before := m.live
	m.live += change
	t := m.table
	t.live += change
	t.budget.Filters.add(change)
	t.filters.live += change
	switch {
	case before == 0 && m.live > 0:
		t.used++
		t.budget.Masks.add(1)
		t.filters.masks++
	case before > 0 && m.live == 0:
		t.used--
		t.budget.Masks.add(-1)
		t.filters.masks--
	}
}

// top is the highest rank of its filters, with those that were deleted and may still be found; 0: it has none.
func (m *mask) top() uint64 {
	for len(m.ranks) > 0 {
		r := m.ranks[0]
		if m.table.filters.info[r.filter].mask == m && m.table.filters.head(r.filter).rank == r.rank {
			return r.rank
		}
		heap.Pop(&m.ranks)
	}
	return 0
}

// link puts a filter into its chain, in its place by rank. Lookups can find it then, in versions in which it is there.
func (f *Filters) link(m *mask, k key, n uint32) error {
	if err := f.linkInto(m, k, n); err != nil {
		return err
	}
	f.info[n] = info{mask: m, at: len(m.filters)}
	m.filters = append(m.filters, n)
	if len(m.ranks) > 2*len(m.filters)+16 { // most have gone
		m.ranks = slices.DeleteFunc(m.ranks, func(r ranked) bool {
			return f.info[r.filter].mask != m || f.head(r.filter).rank != r.rank
		})
		heap.Init(&m.ranks)
	}
	heap.Push(&m.ranks, ranked{f.head(n).rank, n})
	return nil
}

func (f *Filters) linkInto(m *mask, k key, n uint32) error {
	for tries := 0; ; tries++ {
		at, first, ok := f.chains.locate(m, k)
		if !ok {
			return f.addChain(m, k, n)
		}
		length, live := f.count(first)
		switch {
		case live >= MaxSame:
			return fmt.Errorf("%w: %d have this key and mask", ErrFull, live)
		case length < same:
			f.linkBehind(at, first, n)
			return nil
		case tries > 0:
			return fmt.Errorf("%w: %d with this key and mask are on their way out", ErrFull, length-live)
		}
		if err := f.sweep(); err != nil {
			return err
		}
	}
}

// count says how long a chain is, and how many of its filters have not been deleted.
func (f *Filters) count(n uint32) (length, live int) {
	for ; n != 0; n = f.head(n).next {
		length++
		if f.lives(n) {
			live++
		}
	}
	return length, live
}

// linkBehind puts a filter behind those of a higher rank.
func (f *Filters) linkBehind(at slotRef, first, n uint32) {
	own := f.head(n)
	if f.head(first).rank < own.rank {
		own.next = first
		slot := &f.chains.buckets[at.bucket].slot[at.slot]
		id, _ := splitSlot(*slot)
		f.store32(slot, newSlot(id, n))
		return
	}
	before := f.head(first)
	for before.next != 0 && f.head(before.next).rank > own.rank {
		before = f.head(before.next)
	}
	own.next = before.next
	f.store32(&before.next, n)
}

// unlink takes a filter out of its chain that no lookup needs any more. Those that are under way may still come to it.
func (f *Filters) unlink(n uint32) {
	m, k := f.info[n].mask, f.keyOf(n)
	at, first, ok := f.chains.locate(m, k)
	if !ok {
		panic(fmt.Sprintf("filter %d is in no chain", n))
	}
	own := f.head(n)
	switch {
	case first != n:
		before := f.head(first)
		for before.next != n {
			before = f.head(before.next)
		}
		f.store32(&before.next, own.next)
	case own.next != 0:
		f.store32(&f.chains.buckets[at.bucket].slot[at.slot], newSlot(m.id, own.next))
	default:
		f.chains.remove(at, m.hash(k))
	}
	i, last := f.info[n].at, len(m.filters)-1
	m.filters[i] = m.filters[last]
	f.info[m.filters[i]].at = i
	m.filters = m.filters[:last]
	f.info[n] = info{}
	f.numbers[f.class[n/chunkSize]].giveBack(n)
}

// ranks is a heap of the ranks of filters, the highest one first, some of which may have gone.
type ranks []ranked

type ranked struct {
	rank   uint64
	filter uint32
}

func (r ranks) Len() int           { return len(r) }
func (r ranks) Less(i, j int) bool { return r[i].rank > r[j].rank }
func (r ranks) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ranks) Push(v any)        { *r = append(*r, v.(ranked)) }
func (r *ranks) Pop() any {
	last := len(*r) - 1
	v := (*r)[last]
	*r = (*r)[:last]
	return v
}
