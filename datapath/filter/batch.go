package filter

import "fmt"

// A batch is changes of a table that lookups see all at once, or not at all: the filters that come are there from the
// table's next version on, those that go until then. Until that version is the table's, all can be undone.
type batch struct {
	*Filters
	table   *Table
	version uint64
	born    []uint32
	died    []death

	live, used, all int // filters and masks of the table, and filters of all, before
}

func (t *Table) begin() *batch {
	return &batch{
		Filters: t.filters, table: t, version: load64(&t.filters.index.table[t.id].version) + 1,
		live: t.live, used: t.used, all: t.filters.live,
	}
}

// A parsed filter is one whose lengths are right.
type parsed struct {
	key, mask key // the key as the mask leaves it
	priority  uint32
	result    *Result
}

func (t *Table) parse(f *Filter) (parsed, error) {
	if len(f.Key) != t.bytes || len(f.Mask) != t.bytes {
		return parsed{}, fmt.Errorf("%w: a key of %d bytes and a mask of %d, in a table whose keys have %d",
			ErrLength, len(f.Key), len(f.Mask), t.bytes)
	}
	mask := newKey(f.Mask)
	return parsed{key: newKey(f.Key).and(mask), mask: mask, priority: f.Priority, result: &f.Result}, nil
}

// find gives the filter with this key, mask and priority; 0: there is none.
func (b *batch) find(p parsed) uint32 {
	m := b.table.masks[p.mask]
	if m == nil {
		return 0
	}
	_, n, _ := b.chains.locate(m, p.key)
	for n != 0 && (priorityOf(b.head(n).rank) != p.priority || !b.lives(n)) {
		n = b.head(n).next
	}
	return n
}

// insert brings a filter. Where it takes the place of another one, it keeps its hits.
func (b *batch) insert(p parsed, rank uint64, instead uint32) error {
	n, err := b.newNumber(hashedWords(b.table.bytes))
	if err != nil {
		return err
	}
	h, key := b.entry(n)
	*h = head{rank: rank, passing: 1}
	copy(key, p.key[:])
	*b.resultOf(n) = *p.result
	*b.lifeOf(n) = life{born: b.version, died: alive}
	b.clearHits(n)
	if instead != 0 {
		b.delete(instead, n)
	}
	m := b.table.masks[p.mask]
	if m == nil {
		m, err = b.table.newMask(p.mask)
	}
	if err == nil {
		b.raise(m, rank)
		err = b.link(m, p.key, n)
	}
	if err != nil {
		b.numbers[b.class[n/chunkSize]].giveBack(n)
		b.table.disturbed = true
		return err
	}
	m.alive(1)
	b.born = append(b.born, n)
	b.newborn = append(b.newborn, n)
	return nil
}

// delete lets a filter go. Another one may take its place.
func (b *batch) delete(n, heir uint32) {
	l := b.lifeOf(n)
	if h := b.head(n); h.passing == 0 {
		l.born = 0
		b.store64(&l.died, b.version)
		b.store32(&h.passing, 1)
	} else {
		b.store64(&l.died, b.version)
	}
	b.info[n].mask.alive(-1)
	b.died = append(b.died, death{number: n, heir: heir})
}

// check says whether the table may be as it is now.
func (b *batch) check() error {
	t := b.table
	switch {
	case t.live > max(t.quota.Filters, b.live):
		return fmt.Errorf("%w: %d filters of %d", ErrQuota, t.live, t.quota.Filters)
	case t.used > max(t.quota.Masks, b.used):
		return fmt.Errorf("%w: %d distinct masks of %d", ErrQuota, t.used, t.quota.Masks)
	case b.Filters.live > max(MaxFilters, b.all):
		return fmt.Errorf("%w: %d filters of %d", ErrFull, b.Filters.live, MaxFilters)
	}
	if err := t.budget.Filters.check(t.live - b.live); err != nil {
		return err
	}
	return t.budget.Masks.check(t.used - b.used)
}

// commit makes all changes visible.
func (b *batch) commit() {
	for i := range b.died {
		if d := &b.died[i]; d.heir != 0 {
			d.known = b.hitsOf(d.number)
			b.chunks[d.heir/chunkSize].hits[d.heir%chunkSize] = d.known
		}
	}
	b.store64(&b.index.table[b.table.id].version, b.version)
	b.dying = append(b.dying, b.died...)
	b.reorder(b.table)
}

// undo takes all changes back. No lookup has seen any.
func (b *batch) undo() {
	for _, d := range b.died {
		b.store64(&b.lifeOf(d.number).died, alive)
		b.info[d.number].mask.alive(1)
		b.newborn = append(b.newborn, d.number)
	}
	for _, n := range b.born {
		b.info[n].mask.alive(-1)
		b.store64(&b.lifeOf(n).died, 0)
		b.unlink(n)
	}
	b.table.disturbed = true
	b.reorder(b.table)
}
