package filter

import (
	"container/heap"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

var errNonsense = errors.New("the filters' maps make no sense")

// open adopts what is in the maps, whose chunks have been noted in m. Maps that make no sense, which is an error of
// ours, are emptied: what they had is lost then, and the tables are not there.
func open(m *memory, stripes int, shared bool, release func() error) (*Filters, error) {
	if m.index.buckets == 0 {
		m.begin(stripes, shared)
	}
	f, err := adopt(m)
	if errors.Is(err, errNonsense) {
		fresh := newMemory(m.kernel, m.index, m.buckets)
		fresh.chunks, fresh.hits, fresh.made, fresh.stored = m.chunks, m.hits, m.made, m.stored
		fresh.wipe()
		f, err = adopt(fresh)
	}
	if err != nil {
		return nil, err
	}
	f.release = release
	return f, nil
}

func adopt(m *memory) (*Filters, error) {
	f := &Filters{memory: m, tables: map[uint32]*Table{}, gone: map[uint32]*Table{}}
	size := m.index.buckets
	if bits.OnesCount32(size) != 1 || size < minBuckets || size > maxBuckets {
		return nil, fmt.Errorf("%w: %d buckets", errNonsense, size)
	}
	f.info = make([]info, m.made*chunkSize)
	f.chains = m.region(size)
	f.clearRemoved()
	// For what the earlier process had given up, or deleted: no lookup needs it afterwards.
	if err := f.await(); err != nil {
		return nil, err
	}
	if err := f.adoptTables(); err != nil {
		return nil, err
	}
	used, err := f.adoptChains()
	if err != nil {
		return nil, err
	}
	// For what has been taken out of chains.
	if err := f.await(); err != nil {
		return nil, err
	}
	f.restock(used)
	f.waits = 1
	f.reorderAll()
	return f, nil
}

func (m *memory) await() error {
	if m.made == 0 { // there is nothing to wait for
		return nil
	}
	if err := m.kernel.wait(); err != nil {
		return fmt.Errorf("wait for the programs that run: %w", err)
	}
	return nil
}

// wipe empties all tables.
func (m *memory) wipe() {
	for id := range m.index.table {
		if r := &m.index.table[id]; r.bytes != 0 || r.order != 0 {
			m.store64(&r.order, 0)
			m.store32(&r.bytes, 0)
		}
	}
	for i := range m.buckets {
		m.store64(&m.buckets[i].marks, 0)
	}
	m.store32(&m.index.buckets, minBuckets)
}

// begin makes maps that nobody has used: with secrets, and buckets.
func (m *memory) begin(stripes int, shared bool) {
	secret := make([]byte, 8*words)
	_, _ = rand.Read(secret) // it never fails
	for i := range m.index.secret {
		m.index.secret[i] = binary.NativeEndian.Uint64(secret[8*i:])
	}
	m.index.stripes = uint32(stripes)
	if shared {
		m.index.shared = 1
	}
	m.store32(&m.index.buckets, minBuckets)
}

// clearRemoved takes the masks from tables that were removed.
func (f *Filters) clearRemoved() {
	for id := range f.index.table {
		if r := &f.index.table[id]; r.bytes == 0 && r.order != 0 {
			f.store64(&r.order, 0)
		}
	}
}

// adoptTables adopts the tables and their masks. What a chain leads to, and is there in the version of its table, is in
// use; everything else is free. Changes that were under way are undone.
func (f *Filters) adoptTables() error {
	for id := range f.index.table {
		if f.index.table[id].bytes != 0 {
			if err := f.adoptTable(uint32(id)); err != nil {
				return fmt.Errorf("adopt table %d: %w", id, err)
			}
		}
	}
	return nil
}

func (f *Filters) adoptTable(id uint32) error {
	r := &f.index.table[id]
	if r.bytes > MaxKeyBytes || int(r.words) != hashedWords(int(r.bytes)) {
		return fmt.Errorf("%w: keys of %d bytes, in %d words", errNonsense, r.bytes, r.words)
	}
	t := f.newTable(id, int(r.bytes))
	t.disturbed = true
	t.span = span(r.order)
	if t.span.first()+t.span.count()*t.maskWords() > orderWords || t.span.count() > MaxTableMasks {
		return fmt.Errorf("%w: %d masks from word %d on", errNonsense, t.span.count(), t.span.first())
	}
	f.spans.mark(t.span.first(), t.span.count()*t.maskWords(), true)
	for i := range t.span.count() {
		at := f.index.order[t.span.first()+i*t.maskWords():][:t.maskWords()]
		m := &mask{table: t, place: i, seed: at[1], id: uint32(at[2])}
		copy(m.word[:], at[maskHead:])
		if at[2] == 0 || at[2] >= MaxMasks || f.byID[m.id] != nil || t.masks[m.word] != nil {
			return fmt.Errorf("%w: mask %d", errNonsense, at[2])
		}
		f.byID[m.id], t.masks[m.word] = m, m
		t.places = append(t.places, m)
	}
	return nil
}

// adoptChains goes through all slots, and keeps of each chain the filters that are there.
func (f *Filters) adoptChains() (used map[uint32]int, err error) {
	used = map[uint32]int{} // words of keys, by filter
	old := f.chains
	chains := map[slotRef][]uint32{}
	for n := range old.buckets {
		b := &old.buckets[n]
		for i, slot := range b.slot {
			if lane(b.marks, i) == 0 {
				f.store32(&b.slot[i], 0)
				continue
			}
			id, first := splitSlot(slot)
			if id >= MaxMasks || f.byID[id] == nil { // of a table that was removed
				f.store64(&b.marks, setLane(b.marks, i, 0))
				f.store32(&b.slot[i], 0)
				continue
			}
			m := f.byID[id]
			at := slotRef{uint32(n), i}
			if chains[at], err = f.adoptChain(m, first, used); err != nil {
				return nil, err
			}
		}
	}
	for at, kept := range chains {
		f.keep(at, kept)
	}
	for _, t := range f.tables {
		for _, m := range t.masks {
			heap.Init(&m.ranks)
		}
	}
	return used, f.recount()
}

// adoptChain lists the filters of a chain that are there.
func (f *Filters) adoptChain(m *mask, first uint32, used map[uint32]int) ([]uint32, error) {
	var (
		kept    []uint32
		words   = hashedWords(m.table.bytes)
		version = f.index.table[m.table.id].version
	)
	for n, length := first, 0; n != 0; n, length = f.head(n).next, length+1 {
		c := n / chunkSize
		if int(c) >= f.made || length > same || f.class[c] != 0 && f.class[c] != words {
			return nil, fmt.Errorf("%w: filter %d", errNonsense, n)
		}
		f.class[c] = words
		h, l := f.head(n), f.lifeOf(n)
		if h.passing != 0 && (l.born > version || l.died <= version) {
			continue
		}
		if _, ok := used[n]; ok {
			return nil, fmt.Errorf("%w: filter %d is in two chains", errNonsense, n)
		}
		used[n] = words
		if h.passing != 0 {
			f.store64(&l.died, alive)
		}
		m.table.order = max(m.table.order, ^uint32(h.rank))
		f.info[n] = info{mask: m, at: len(m.filters)}
		m.filters = append(m.filters, n)
		m.ranks.Push(ranked{h.rank, n})
		m.alive(1)
		kept = append(kept, n)
	}
	return kept, nil
}

// keep leaves these filters in a chain, which lookups may be going through.
func (f *Filters) keep(at slotRef, kept []uint32) {
	b := &f.chains.buckets[at.bucket]
	if len(kept) == 0 {
		f.store64(&b.marks, setLane(b.marks, at.slot, 0))
		f.store32(&b.slot[at.slot], 0)
		return
	}
	id, first := splitSlot(b.slot[at.slot])
	if first != kept[0] {
		f.store32(&b.slot[at.slot], newSlot(id, kept[0]))
	}
	for i, n := range kept {
		next := uint32(0)
		if i+1 < len(kept) {
			next = kept[i+1]
		}
		h := f.head(n)
		if h.next != next {
			f.store32(&h.next, next)
		}
		if h.passing != 0 {
			f.store32(&h.passing, 0)
		}
	}
}

// recount finds out which chains are not in their own bucket.
func (f *Filters) recount() error {
	r := f.chains
	for n := range r.buckets {
		b := &r.buckets[n]
		for i, slot := range b.slot {
			if lane(b.marks, i) == 0 {
				continue
			}
			id, first := splitSlot(slot)
			h := f.byID[id].hash(f.keyOf(first))
			r.chains++
			for probe := uint32(0); r.at(h, probe) != uint32(n); probe++ {
				if probe == probes {
					return fmt.Errorf("%w: filter %d is in the wrong bucket", errNonsense, first)
				}
				r.passed[r.at(h, probe)]++
			}
		}
	}
	for n := range r.buckets {
		b := &r.buckets[n]
		if has := b.marks&passed != 0; has != (r.passed[n] > 0) {
			f.store64(&b.marks, b.marks^passed)
		}
	}
	return nil
}

// restock fills the stocks with everything but what is used.
func (f *Filters) restock(used map[uint32]int) {
	f.ids = stock{}
	for id := MaxMasks - 1; id > 0; id-- {
		if f.byID[id] == nil {
			f.ids.free = append(f.ids.free, uint32(id))
		} else {
			f.ids.used++
		}
	}
	for c := range f.made {
		if f.class[c] == 0 {
			f.class[c] = 2
		}
		s := f.numbers[f.class[c]]
		for i := chunkSize - 1; i >= 0; i-- {
			n := uint32(c*chunkSize + i)
			if _, ok := used[n]; ok {
				s.used++
				f.holds[c]++
			} else if n != 0 {
				s.free = append(s.free, n)
			}
		}
	}
}
