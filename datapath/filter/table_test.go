package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// filterOf is a filter for keys of 16 bytes: exact, or with the first bits of the mask alone.
func filterOf(n, bits int, priority uint32) Filter {
	f := Filter{Key: make([]byte, 16), Mask: make([]byte, 16), Priority: priority, Result: result(n)}
	binary.BigEndian.PutUint64(f.Key, uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(f.Key[8:], uint64(n))
	for bit := range bits {
		f.Mask[bit/8] |= 128 >> (bit % 8)
	}
	return f
}

func exact(n int) Filter { return filterOf(n, 128, 1) }

// prefixes are filters of the same key with masks of so many bits, and of the same priority.
func prefixes(bits ...int) []Filter {
	var all []Filter
	for _, n := range bits {
		all = append(all, filterOf(1, n, 1))
	}
	return all
}

func filters(all ...Filter) []Filter { return all }

func several(first, count int) []Filter {
	all := make([]Filter, count)
	for i := range all {
		all[i] = exact(first + i)
	}
	return all
}

func TestWhatIsWrongChangesNothing(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(several(1, 3)...))
	long := exact(9)
	long.Mask = append(long.Mask, 0)
	short := exact(9)
	short.Key = short.Key[:15]
	for name, c := range map[string]struct {
		changes []Change
		want    error
	}{
		"a mask that is too long": {changes(Insert, filters(exact(8), long)), ErrLength},
		"a key that is shorter":   {changes(Set, filters(exact(8), short)), ErrLength},
		"a filter that is there":  {changes(Insert, filters(exact(8), exact(2))), ErrExists},
		"a filter twice":          {changes(Insert, filters(exact(8), exact(8))), ErrExists},
		"no filter to delete":     {changes(Delete, filters(exact(1), exact(8))), ErrMissing},
		"a filter deleted twice":  {changes(Delete, filters(exact(1), exact(1))), ErrMissing},
		"no such operation":       {[]Change{{Insert, exact(8)}, {99, exact(9)}}, nil},
	} {
		err := table.Apply(c.changes...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, list(several(1, 3)).sameAs(table, []key{newKey(exact(1).Key), newKey(exact(8).Key)}))
	}
	if err := table.Replace([]Filter{exact(8), exact(9), exact(8)}); !errors.Is(err, ErrExists) {
		t.Errorf("a table with a filter twice: %v", err)
	}
	if err := table.Replace([]Filter{long}); !errors.Is(err, ErrLength) {
		t.Errorf("a table with a mask that is too long: %v", err)
	}
	must(t, list(several(1, 3)).sameAs(table, nil))
}

func TestTablesHaveBounds(t *testing.T) {
	f := (&plain{}).open(t)
	for _, c := range []struct {
		id    uint32
		bytes int
	}{{1, 0}, {1, -1}, {1, 65}, {MaxTables, 16}, {math.MaxUint32, 16}} {
		if _, err := f.Table(c.id, c.bytes, Quota{1, 1}); err == nil {
			t.Errorf("table %d with keys of %d bytes was made", c.id, c.bytes)
		}
	}
	mustTable(t, f, 1, 16)
	if _, err := f.Table(1, 17, Quota{1, 1}); !errors.Is(err, ErrLength) {
		t.Errorf("a table got keys of another length: %v", err)
	}
	if got := f.Tables(); !slices.Equal(got, []uint32{1}) {
		t.Errorf("tables %v", got)
	}
}

func TestAQuotaBoundsATable(t *testing.T) {
	f := (&plain{}).open(t)
	table, err := f.Table(1, 16, Quota{Filters: 4, Masks: 2})
	must(t, err)
	must(t, table.Insert(several(1, 3)...))
	if err := table.Insert(several(4, 2)...); !errors.Is(err, ErrQuota) {
		t.Errorf("more filters than the quota: %v", err)
	}
	must(t, table.Insert(filterOf(4, 64, 1)))
	if err := table.Replace(prefixes(1, 2, 3)); !errors.Is(err, ErrQuota) {
		t.Errorf("more masks than the quota: %v", err)
	}
	must(t, table.Apply(append(changes(Delete, several(1, 2)), changes(Insert, several(5, 2))...)...))

	// A quota that is less than what there is: the table can change, and shrink.
	table, err = f.Table(1, 16, Quota{Filters: 1, Masks: 1})
	must(t, err)
	if err := table.Insert(exact(7)); !errors.Is(err, ErrQuota) {
		t.Errorf("more filters than a lower quota: %v", err)
	}
	must(t, table.Apply(Change{Delete, exact(5)}, Change{Insert, exact(7)}))
	must(t, table.Set(exact(7)))
	must(t, table.Delete(exact(7), exact(6)))
	must(t, list{exact(3), filterOf(4, 64, 1)}.sameAs(table, nil))
}

func TestATableHasSoManyMasks(t *testing.T) {
	f := (&plain{}).open(t)
	table := mustTable(t, f, 1, 64)
	masked := func(n int) Filter {
		f := Filter{Key: make([]byte, 64), Mask: make([]byte, 64), Priority: uint32(n), Result: result(n)}
		binary.BigEndian.PutUint16(f.Mask[30:], uint16(n))
		return f
	}
	var want list
	for n := range MaxTableMasks {
		must(t, table.Insert(masked(n)))
		want = append(list{masked(n)}, want...)
	}
	if err := table.Insert(masked(1000)); !errors.Is(err, ErrFull) {
		t.Errorf("one mask more: %v", err)
	}
	must(t, want.sameAs(table, []key{{}, newKey(bytes.Repeat([]byte{255}, 64))}))
	must(t, table.Delete(masked(7)))
	must(t, table.Insert(masked(1000))) // in place of a mask that no filter has any more
}

func TestFiltersWithTheSameKeyHaveABound(t *testing.T) {
	f := (&plain{}).open(t)
	table := mustTable(t, f, 1, 16)
	var want list
	for n := range MaxSame {
		must(t, table.Insert(filterOf(1, 128, uint32(n))))
		want = append(list{filterOf(1, 128, uint32(n))}, want...)
	}
	if err := table.Insert(filterOf(1, 128, 10000)); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	for n := range 2 * same { // each leaves one that is still in the chain
		must(t, table.Set(filterOf(1, 128, uint32(n%MaxSame))))
	}
	must(t, want.sameAs(table, []key{newKey(exact(1).Key)}))
	must(t, table.Delete(want[3]))
	must(t, table.Insert(filterOf(1, 128, 10000)))
}

// A host's filters are used up, by one table with short keys and then by another one with long ones.
func TestAHostHasSoManyFilters(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	table, err := f.Table(1, 16, Quota{Filters: math.MaxInt, Masks: 1})
	must(t, err)
	other := mustTable(t, f, 2, 64)
	const half = MaxFilters / 2
	must(t, table.Insert(several(0, half)...))
	must(t, table.Insert(several(half, half)...))
	if u := f.Usage(); u.Filters != MaxFilters {
		t.Fatalf("%+v", u)
	}
	if err := table.Insert(exact(MaxFilters)); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	must(t, table.Replace(append([]Filter{exact(0)}, several(MaxFilters, MaxFilters-1)...))) // all others are new
	must(t, table.Apply(Change{Delete, exact(MaxFilters)}, Change{Insert, exact(1)}))
	for _, n := range []int{0, 1, MaxFilters + 1, 2*MaxFilters - 2} {
		if got := f.find(1, newKey(exact(n).Key), nil).result; got != result(n) {
			t.Errorf("filter %d: %v", n, got[:4])
		}
	}
	must(t, table.Remove())
	long := make([]Filter, MaxFilters)
	for i := range long {
		long[i] = exact(i)
		long[i].Key = append(long[i].Key, make([]byte, 48)...)
		long[i].Mask = append(long[i].Mask, bytes.Repeat([]byte{255}, 48)...)
	}
	must(t, other.Insert(long...))
	if u := f.Usage(); u.Bytes > u.BytesBound || u.Filters != MaxFilters {
		t.Errorf("%+v", u)
	}
	must(t, other.Remove())
	must(t, f.Tidy())
	if f.chains.size() != minBuckets {
		t.Errorf("%d buckets for no filters", f.chains.size())
	}
}

func TestNoMemoryChangesNothing(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(several(0, 100)...))
	p.grown = func() error { return ErrFull }
	if err := table.Insert(several(100, 3000)...); !errors.Is(err, ErrFull) {
		t.Errorf("without memory: %v", err)
	}
	must(t, list(several(0, 100)).sameAs(table, []key{newKey(exact(1).Key), newKey(exact(100).Key)}))
	must(t, f.Tidy())
	must(t, table.Replace(several(500, 900)))
	p.grown = nil
	must(t, table.Insert(several(2000, 3000)...))
	must(t, list(append(several(500, 900), several(2000, 3000)...)).sameAs(table, []key{newKey(exact(501).Key)}))
}

func TestHitsStayWithAFilter(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(several(1, 3)...))
	hit := func(n, times int) {
		number := f.find(1, newKey(exact(n).Key), nil).number
		f.hits[number/chunkSize][n%2][number%chunkSize] += uint64(times)
	}
	want := func(hits ...uint64) {
		t.Helper()
		var got []uint64
		for _, e := range table.List() {
			got = append(got, e.Hits)
		}
		if !slices.Equal(got, hits) {
			t.Errorf("hits %v, and not %v", got, hits)
		}
	}
	hit(1, 5)
	hit(2, 7)
	must(t, table.Insert(several(10, 3000)...)) // chunks come, buckets change
	must(t, table.Delete(several(10, 3000)...))
	must(t, f.Tidy())
	want(5, 7, 0)
	old := f.find(1, newKey(exact(2).Key), nil).number
	must(t, table.Set(Filter{Key: exact(2).Key, Mask: exact(2).Mask, Priority: 1, Result: result(99)}))
	f.hits[0][0][old] += 100 // a lookup that was under way
	hit(2, 3)
	must(t, table.Set(exact(2)))
	hit(2, 4)
	must(t, f.Tidy())
	want(5, 114, 0)
	must(t, table.Replace([]Filter{exact(3), exact(2), exact(1)})) // another order of the same priority
	want(0, 114, 5)
	f = p.open(t)
	table = mustTable(t, f, 1, 16)
	want(0, 114, 5)
	must(t, table.Delete(exact(2)))
	must(t, f.Tidy())
	must(t, table.Insert(exact(2)))
	want(0, 5, 0)
}

func TestOrdersBeginAnewWhenTheyAreUsedUp(t *testing.T) {
	f := (&plain{}).open(t)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(prefixes(8, 16, 24)...))
	table.order = lastOrder - 1
	must(t, table.Insert(prefixes(32)...))
	must(t, table.Insert(prefixes(40, 48)...))
	must(t, list(prefixes(8, 16, 24, 32, 40, 48)).sameAs(table, []key{newKey(exact(1).Key)}))
	if table.order > 10 {
		t.Errorf("the last order is %d", table.order)
	}
}

func TestATableThatWasRemovedIsOfNoUse(t *testing.T) {
	f := (&plain{}).open(t)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(exact(1)))
	must(t, table.Remove())
	for _, err := range []error{table.Insert(exact(2)), table.Replace(nil), table.Remove()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	again := mustTable(t, f, 1, 64) // with other keys
	must(t, list{}.sameAs(again, []key{newKey(exact(1).Key)}))
}

func TestMapsThatMakeNoSenseAreEmptied(t *testing.T) {
	for name, corrupt := range map[string]func(p *plain){
		"buckets":  func(p *plain) { p.index.buckets = 33 },
		"an order": func(p *plain) { p.index.table[1].order = uint64(newSpan(orderWords-1, 2)) },
		"a mask":   func(p *plain) { p.index.order[span(p.index.table[1].order).first()+2] = MaxMasks },
		"words":    func(p *plain) { p.index.table[1].words = 3 },
		"a chain": func(p *plain) {
			for i := range p.buckets {
				if slot := &p.buckets[i].slot[0]; *slot != 0 {
					*slot += 5 * chunkSize
				}
			}
		},
		"a loop": func(p *plain) {
			for i := range p.buckets {
				if slot := p.buckets[i].slot[0]; slot != 0 {
					_, n := splitSlot(slot)
					p.chunks[0].filter[n*(filterHead+2)+1] = uint64(n)
				}
			}
		},
	} {
		p := &plain{}
		f := p.open(t)
		must(t, mustTable(t, f, 1, 16).Insert(several(1, 10)...))
		corrupt(p)
		f = p.open(t)
		if got := f.Tables(); len(got) > 0 {
			t.Errorf("%s: tables %v", name, got)
		}
		table := mustTable(t, f, 1, 16)
		must(t, table.Insert(several(5, 10)...))
		must(t, list(several(5, 10)).sameAs(table, []key{newKey(exact(1).Key), newKey(exact(6).Key)}))
	}
}

// Masks that have the best filters are looked at first, and where they have one, the others are not.
func TestMasksStandInTheOrderOfTheirBestFilters(t *testing.T) {
	f := (&plain{}).open(t)
	table := mustTable(t, f, 1, 16)
	random := rand.New(rand.NewPCG(1, 2))
	present := map[int]Filter{}
	for range 2000 {
		n := random.IntN(60)
		if was, ok := present[n]; ok {
			must(t, table.Delete(was))
			delete(present, n)
		} else {
			present[n] = filterOf(n, n%17+1, uint32(n*7%60))
			must(t, table.Insert(present[n]))
		}
	}
	must(t, f.Tidy())
	for i, m := range table.places {
		if len(m.filters) == 0 || m.place != i {
			t.Errorf("mask %d: %d filters, in place %d", i, len(m.filters), m.place)
		}
		if i > 0 && table.places[i-1].top() < m.top() {
			t.Errorf("mask %d comes after one that is worse", i)
		}
		if *table.boundAt(i) != m.top() {
			t.Errorf("mask %d: its bound is %x, its best rank %x", i, *table.boundAt(i), m.top())
		}
	}
}

func TestABudgetBoundsTablesTogetherAndWhatIsSharedByAll(t *testing.T) {
	f := (&plain{}).open(t)
	pool := &Bound{Max: 6, What: "filters of all"}
	own := func(most int) Budget {
		return Budget{Filters: &Bound{Max: most, Of: pool, What: "filters of one"}, Masks: &Bound{Max: 2}}
	}
	a, b, c := mustTable(t, f, 1, 16), mustTable(t, f, 2, 16), mustTable(t, f, 3, 16)
	both := own(4)
	a.Charge(both)
	b.Charge(both)
	c.Charge(own(100))
	must(t, a.Insert(several(1, 3)...))
	err := b.Insert(several(1, 2)...)
	if !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "5 of 4 filters of one") {
		t.Errorf("two tables have more filters than their budget: %v", err)
	}
	must(t, b.Insert(exact(1)))
	if err := b.Insert(filterOf(4, 64, 1)); !errors.Is(err, ErrQuota) {
		t.Errorf("two tables have more masks than their budget: %v", err)
	}
	err = c.Insert(several(1, 3)...)
	if !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "7 of 6 filters of all") {
		t.Errorf("more filters than all may have: %v", err)
	}
	must(t, c.Insert(several(1, 2)...))
	must(t, a.Remove())
	if n := f.Used(pool); n != 3 {
		t.Errorf("%d filters are counted, there are 3", n)
	}

	// A reservation of its own leaves the pool to others.
	b.Charge(Budget{Filters: &Bound{Max: 100}})
	must(t, c.Insert(several(3, 4)...))
	must(t, b.Insert(several(2, 50)...))
	if n := f.Used(pool); n != 6 {
		t.Errorf("%d filters are counted, there are 6", n)
	}
}
