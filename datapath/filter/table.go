package filter

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// An Op is what a change does.
type Op int

// What a change does with a filter.
const (
	Insert Op = iota // which is not there
	Delete           // which is there; Result does not count
	// Set gives a result to a filter that is there, which keeps its rank and its hits, or inserts it.
	Set
)

// A Change is one of a batch.
type Change struct {
	Op Op
	Filter
}

// Apply makes all changes, in their order, or none. Lookups see the table as it was before or as it is after all of
// them. It needs room for the filters that come while those that go are still there.
func (t *Table) Apply(changes ...Change) error {
	t.filters.mu.Lock()
	defer t.filters.mu.Unlock()
	if err := t.apply(changes); err != nil {
		return fmt.Errorf("change table %d: %w", t.id, err)
	}
	return nil
}

// Insert inserts filters, all or none. One with the key, mask and priority of another is an error.
func (t *Table) Insert(filters ...Filter) error { return t.Apply(changes(Insert, filters)...) }

// Delete deletes filters, all or none, by their keys, masks and priorities.
func (t *Table) Delete(filters ...Filter) error { return t.Apply(changes(Delete, filters)...) }

// Set gives results to filters that are there, and inserts the others, all or none.
func (t *Table) Set(filters ...Filter) error { return t.Apply(changes(Set, filters)...) }

func changes(op Op, filters []Filter) []Change {
	all := make([]Change, len(filters))
	for i := range filters {
		all[i] = Change{op, filters[i]}
	}
	return all
}

func (t *Table) apply(changes []Change) error {
	if t.closed {
		return ErrClosed
	}
	if err := t.renumber(len(changes)); err != nil {
		return err
	}
	b := t.begin()
	for i := range changes {
		if err := b.change(&changes[i]); err != nil {
			b.undo()
			return &Error{Number: i + 1, Of: len(changes), Err: err}
		}
	}
	if err := b.check(); err != nil {
		b.undo()
		return err
	}
	b.commit()
	return nil
}

func (b *batch) change(c *Change) error {
	p, err := b.table.parse(&c.Filter)
	if err != nil {
		return err
	}
	n := b.find(p)
	switch c.Op {
	case Insert:
		if n != 0 {
			return ErrExists
		}
		return b.insert(p, b.table.nextRank(p.priority), 0)
	case Delete:
		if n == 0 {
			return ErrMissing
		}
		b.delete(n, 0)
		return nil
	case Set:
		if n != 0 {
			return b.insert(p, b.head(n).rank, n)
		}
		return b.insert(p, b.table.nextRank(p.priority), 0)
	default:
		return fmt.Errorf("no such operation: %d", c.Op)
	}
}

// nextRank is that of a filter that is inserted now: of the same priority, all others win.
func (t *Table) nextRank(priority uint32) uint64 {
	t.order++
	return newRank(priority, t.order)
}

// renumber makes sure that there are orders for so many filters.
func (t *Table) renumber(count int) error {
	if uint64(t.order)+uint64(count) <= lastOrder {
		return nil
	}
	var all []Filter
	for _, n := range t.sorted() {
		all = append(all, t.entry(n).Filter)
	}
	t.order = 0
	if err := t.replace(all, true); err != nil {
		t.order = lastOrder
		return fmt.Errorf("renumber the filters: %w", err)
	}
	return nil
}

// Replace makes filters all that the table has, or changes nothing. Lookups see all of the old table or all of the new
// one. Of filters with the same priority, the first one wins. A filter that was there before keeps its hits.
func (t *Table) Replace(filters []Filter) error {
	t.filters.mu.Lock()
	defer t.filters.mu.Unlock()
	err := ErrClosed
	if !t.closed {
		if err = t.renumber(len(filters)); err == nil {
			err = t.replace(filters, false)
		}
	}
	if err != nil {
		return fmt.Errorf("replace table %d: %w", t.id, err)
	}
	return nil
}

// replace leaves a filter that is there already as it is, unless `anew`, if its place among those of its priority is
// right.
func (t *Table) replace(filters []Filter, anew bool) error {
	b := t.begin()
	if err := b.replace(filters, anew); err != nil {
		b.undo()
		return err
	}
	if err := b.check(); err != nil {
		b.undo()
		return err
	}
	b.commit()
	return nil
}

func (b *batch) replace(filters []Filter, anew bool) error {
	old := map[uint32]bool{} // filters: are they to go?
	for _, n := range b.table.all() {
		old[n] = true
	}
	last := map[uint32]uint64{} // rank, by priority
	for i := range filters {
		p, err := b.table.parse(&filters[i])
		if err != nil {
			return &Error{Number: i + 1, Of: len(filters), Err: err}
		}
		n := b.find(p)
		if n != 0 && !old[n] {
			return &Error{Number: i + 1, Of: len(filters), Err: ErrExists}
		}
		before, ok := last[p.priority]
		if n != 0 && !anew && (!ok || b.head(n).rank < before) && *b.resultOf(n) == *p.result {
			old[n] = false
			last[p.priority] = b.head(n).rank
			continue
		}
		rank := b.table.nextRank(p.priority)
		if err := b.insert(p, rank, n); err != nil {
			return &Error{Number: i + 1, Of: len(filters), Err: err}
		}
		delete(old, n)
		last[p.priority] = rank
	}
	for n, goes := range old {
		if goes {
			b.delete(n, 0)
		}
	}
	return nil
}

// all lists the filters that were not deleted.
func (t *Table) all() []uint32 {
	var all []uint32
	for _, m := range t.masks {
		for _, n := range m.filters {
			if t.filters.lives(n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// sorted lists them in the order in which they win.
func (t *Table) sorted() []uint32 {
	return slices.SortedFunc(slices.Values(t.all()), t.filters.byRank)
}

func (f *Filters) byRank(a, b uint32) int { return cmp.Compare(f.head(b).rank, f.head(a).rank) }

func (t *Table) entry(n uint32) Entry {
	f := t.filters
	return Entry{
		Filter: Filter{
			Key: f.keyOf(n).bytes(t.bytes), Mask: f.info[n].mask.word.bytes(t.bytes),
			Priority: priorityOf(f.head(n).rank), Result: *f.resultOf(n),
		},
		Hits: f.hitsOf(n),
		Rank: f.head(n).rank,
	}
}

// List lists all filters in the order in which they win.
func (t *Table) List() []Entry {
	t.filters.mu.Lock()
	defer t.filters.mu.Unlock()
	var list []Entry
	for _, n := range t.sorted() {
		list = append(list, t.entry(n))
	}
	return list
}

// Matches gives all filters that match a key, in the order in which they win: the first one is what a lookup finds.
// They are those of the moment in which the sequence begins; nothing counts as a hit. A key of another length than the
// table's matches none.
func (t *Table) Matches(k []byte) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, e := range t.matching(k) {
			if !yield(e) {
				return
			}
		}
	}
}

func (t *Table) matching(k []byte) []Entry {
	f := t.filters
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(k) != t.bytes {
		return nil
	}
	var numbers []uint32
	for m := range maps.Values(t.masks) {
		_, n, _ := f.chains.locate(m, newKey(k).and(m.word))
		for ; n != 0; n = f.head(n).next {
			if f.lives(n) {
				numbers = append(numbers, n)
			}
		}
	}
	slices.SortFunc(numbers, f.byRank)
	var all []Entry
	for _, n := range numbers {
		all = append(all, t.entry(n))
	}
	return all
}

// Remove deletes a table with all its filters, if it is there, whoever made it.
func (f *Filters) Remove(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.tables[id]; t != nil {
		f.remove(t)
	}
}

// Remove deletes the table with all its filters. It may not be used afterwards.
func (t *Table) Remove() error {
	t.filters.mu.Lock()
	defer t.filters.mu.Unlock()
	if t.closed {
		return fmt.Errorf("remove table %d: %w", t.id, ErrClosed)
	}
	t.filters.remove(t)
	return nil
}

// remove takes the table from lookups at once, and the rest with the next waits.
func (f *Filters) remove(t *Table) {
	b := t.begin()
	for _, n := range t.all() {
		b.delete(n, 0)
	}
	b.commit()
	f.store32(&f.index.table[t.id].bytes, 0)
	t.closed, t.disturbed = true, true
	delete(f.tables, t.id)
	f.gone[t.id] = t
	f.reorder(t)
}

// awaitTable makes sure that no lookup is in a table that had the id.
func (f *Filters) awaitTable(id uint32) error {
	for tries := 0; f.gone[id] != nil; tries++ {
		if tries == 3 {
			return fmt.Errorf("%w: the table that had this id is still there", ErrFull)
		}
		if err := f.sweep(); err != nil {
			return err
		}
		f.reorderAll()
	}
	return nil
}
