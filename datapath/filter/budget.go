package filter

import "fmt"

// A Bound is how many of something may be in use. It is guarded by the mutex of the Filters that it is used with.
type Bound struct {
	Max int
	Of  *Bound // a larger one, which counts them, too; nil: there is none
	// What says in messages what is counted, and for whom: "filters that programs share".
	What string

	used int
}

// A Budget bounds what several tables may have together. A nil Bound bounds nothing.
type Budget struct {
	Filters, Masks *Bound
}

func (b *Bound) add(change int) {
	for ; b != nil; b = b.Of {
		b.used += change
	}
}

// check says which bound is exceeded after so many were added; nil where none is, or none was added.
func (b *Bound) check(added int) error {
	for ; b != nil && added > 0; b = b.Of {
		if b.used > b.Max {
			return fmt.Errorf("%w: %d of %d %s", ErrQuota, b.used, b.Max, b.What)
		}
	}
	return nil
}

// Charge counts what the table has in a budget, and no longer in the one that it was counted in before. That it exceeds
// the budget is no error: it cannot grow then.
func (t *Table) Charge(b Budget) {
	t.filters.mu.Lock()
	defer t.filters.mu.Unlock()
	if t.closed || t.budget == b {
		return
	}
	t.budget.Filters.add(-t.live)
	t.budget.Masks.add(-t.used)
	t.budget = b
	b.Filters.add(t.live)
	b.Masks.add(t.used)
}

// Used says how many are in use.
func (f *Filters) Used(b *Bound) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return b.used
}
