package filter

import (
	"cmp"
	"fmt"
	"slices"
)

// unitWords is in how many words orders are allocated.
const unitWords = 32

// spans hands out words for the orders of tables.
type spans struct {
	taken [orderWords / unitWords]bool
	rest  []span // with words in place of masks as their number
	from  int    // unit at which to begin to look
}

func unitsFor(words int) int { return (words + unitWords - 1) / unitWords }

// take finds so many words; ok is false if they are not there.
func (s *spans) take(words int) (first int, ok bool) {
	need, run := unitsFor(words), 0
	for i := range 2 * len(s.taken) {
		unit := (s.from + i) % len(s.taken)
		if unit == 0 {
			run = 0
		}
		if s.taken[unit] {
			run = 0
			continue
		}
		if run++; run == need {
			first := unit - need + 1
			s.mark(first*unitWords, words, true)
			s.from = unit + 1
			return first * unitWords, true
		}
	}
	return 0, false
}

func (s *spans) mark(first, words int, taken bool) {
	for unit := first / unitWords; unit < first/unitWords+unitsFor(words); unit++ {
		s.taken[unit] = taken
	}
}

func (s *spans) giveBack(first, words int) { s.rest = append(s.rest, newSpan(first, words)) }

func (s *spans) rested() {
	for _, r := range s.rest {
		s.mark(r.first(), r.count(), false)
	}
	s.rest = nil
}

// maskWords is how many words a mask takes in the table's order.
func (t *Table) maskWords() int { return maskHead + hashedWords(t.bytes) }

// room is for how many masks the table's span has words.
func (t *Table) room() int {
	return unitsFor(t.span.count()*t.maskWords()) * unitWords / t.maskWords()
}

// boundAt is where the bound of the mask in a place stands.
func (t *Table) boundAt(place int) *uint64 {
	return &t.filters.index.order[t.span.first()+place*t.maskWords()]
}

// write writes a mask, and no bound yet, where no lookup goes yet.
func (t *Table) write(first, place int, m *mask, bound uint64) {
	at := t.filters.index.order[first+place*t.maskWords():][:t.maskWords()]
	at[0], at[1], at[2] = bound, m.seed, uint64(m.id)
	copy(at[maskHead:], m.word[:])
}

// appendMask puts a mask behind the others, where no filter has it yet.
func (f *Filters) appendMask(t *Table, m *mask) error {
	if len(t.places) == MaxTableMasks {
		return fmt.Errorf("%w: one table can have %d masks", ErrFull, MaxTableMasks)
	}
	if len(t.places) < t.room() && t.span != 0 {
		t.write(t.span.first(), len(t.places), m, 0)
		m.place = len(t.places)
		t.places = append(t.places, m)
		t.span = newSpan(t.span.first(), len(t.places))
		f.store64(&f.index.table[t.id].order, uint64(t.span))
		return nil
	}
	if err := f.writeOrder(t, append(slices.Clone(t.places), m)); err != nil {
		return fmt.Errorf("%w: no room for the masks of the table", err)
	}
	return nil
}

// writeOrder makes an order in place of the table's.
func (f *Filters) writeOrder(t *Table, places []*mask) error {
	size := len(places) * t.maskWords()
	first, ok := f.spans.take(size)
	if !ok {
		if err := f.sweep(); err != nil { // which may have changed the order, but not what is in it
			return err
		}
		if first, ok = f.spans.take(size); !ok {
			return ErrFull
		}
	}
	bound := uint64(0)
	for i := len(places) - 1; i >= 0; i-- {
		bound = max(bound, places[i].top())
		t.write(first, i, places[i], bound)
	}
	if t.span != 0 {
		f.spans.giveBack(t.span.first(), t.span.count()*t.maskWords())
	}
	for i, m := range places {
		m.place = i
	}
	t.places, t.span = places, newSpan(first, len(places))
	f.store64(&f.index.table[t.id].order, uint64(t.span))
	return nil
}

// clearOrder leaves the table without masks.
func (f *Filters) clearOrder(t *Table) {
	f.store64(&f.index.table[t.id].order, 0)
	f.spans.giveBack(t.span.first(), t.span.count()*t.maskWords())
	t.places, t.span, t.cleared = nil, 0, f.waits
}

// reorderAll does so for all tables. No mask may have been made for a filter that is not in its chain yet.
func (f *Filters) reorderAll() {
	for _, t := range f.tables {
		f.reorder(t)
	}
	for id, t := range f.gone {
		f.reorder(t)
		if t.span == 0 && t.cleared < f.waits {
			delete(f.gone, id)
		}
	}
}

// raise makes sure that lookups do not end before a filter of this rank that comes to the mask.
func (f *Filters) raise(m *mask, rank uint64) {
	for i := m.place; i >= 0 && *m.table.boundAt(i) < rank; i-- {
		f.store64(m.table.boundAt(i), rank)
		m.table.disturbed = m.table.disturbed || i < m.place
	}
}

// reorder puts masks into the order of their best filters, lowers bounds and drops masks that no filter has, if any of
// that is to be done. Without it lookups take longer, and find the same: so there is no error if it cannot be done.
func (f *Filters) reorder(t *Table) {
	if !t.disturbed || t.span == 0 {
		return
	}
	var places, idle []*mask
	for _, m := range t.places {
		if len(m.filters) > 0 {
			places = append(places, m)
		} else {
			idle = append(idle, m)
		}
	}
	slices.SortStableFunc(places, func(a, b *mask) int { return cmp.Compare(b.top(), a.top()) })
	if len(idle) == 0 && slices.Equal(places, t.places) && t.tight() {
		t.disturbed = false
		return
	}
	if len(places) == 0 {
		f.clearOrder(t)
	} else if f.writeOrder(t, places) != nil {
		return
	}
	for _, m := range idle {
		m.drop()
	}
	t.disturbed = false
}

// tight reports whether all bounds are as low as can be, where masks are in order.
func (t *Table) tight() bool {
	for i, m := range t.places {
		if *t.boundAt(i) != m.top() {
			return false
		}
	}
	return true
}
