package filter

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// plain is the kernel's side in plain memory, which survives Filters as the maps do.
type plain struct {
	index   index
	buckets bucketMemory
	chunks  []*chunk
	hits    [][]*counters
	running sync.RWMutex // held by lookups
	waits   int
	grown   func() error // what growing ends with
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func (p *plain) open(t fataler) *Filters {
	t.Helper()
	m := newMemory(p, &p.index, &p.buckets)
	for m.made < len(p.chunks) {
		m.chunks[m.made], m.hits[m.made] = p.chunks[m.made], p.hits[m.made]
		m.made++
	}
	f, err := open(m, 2, false, func() error { return nil })
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return f
}

func (p *plain) grow(n, count, stripes int) ([]*chunk, [][]*counters, error) {
	if n != len(p.chunks) {
		return nil, nil, fmt.Errorf("chunk %d after %d", n, len(p.chunks))
	}
	if p.grown != nil {
		if err := p.grown(); err != nil {
			return nil, nil, err
		}
	}
	for range count {
		p.chunks = append(p.chunks, new(chunk))
		var hits []*counters
		for range stripes {
			hits = append(hits, new(counters))
		}
		p.hits = append(p.hits, hits)
	}
	return p.chunks[n:], p.hits[n:], p.wait()
}

func (p *plain) wait() error {
	p.running.Lock()
	defer p.running.Unlock()
	p.waits++
	return nil
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func mustTable(t fataler, f *Filters, id uint32, bytes int) *Table {
	t.Helper()
	table, err := f.Table(id, bytes, Quota{Filters: MaxFilters, Masks: MaxTableMasks})
	must(t, err)
	return table
}

// A found is what a lookup gives.
type found struct {
	number  uint32
	rank    uint64
	version uint64
	result  Result
}

// find is filter_find() in bpf/filter.h, in Go: the best filter for a key whose rank is less than that of `after`.
func (m *memory) find(table uint32, k key, after *found) found {
	t := &m.index.table[table]
	best, below := found{}, ^uint64(0)
	if after != nil {
		below, best.version = after.rank, after.version
	} else {
		best.version = load64(&t.version)
	}
	order := span(load64(&t.order))
	words := int(load32(&t.words))
	for i := range order.count() {
		at := m.index.order[order.first()+i*(maskHead+words):][:maskHead+words]
		if best.rank > load64(&at[0]) {
			break
		}
		mask := key{}
		copy(mask[:], at[maskHead:])
		h := m.index.hash(at[1], k.and(mask), words)
		m.probe(h, uint32(at[2]), k.and(mask), below, &best)
	}
	return best
}

func (m *memory) probe(h hash, id uint32, k key, below uint64, best *found) {
	size := load32(&m.index.buckets)
	for i := range uint32(probes) {
		b := &m.buckets[(uint32(h)+i)&(size-1)|size]
		marks := load64(&b.marks)
		for j := range b.slot {
			if lane(marks, j) != h.mark() {
				continue
			}
			mask, n := splitSlot(load32(&b.slot[j]))
			if mask == id && n != 0 && m.keyOf(n) == k {
				m.chain(n, below, best)
				return
			}
		}
		if marks&passed == 0 {
			return
		}
	}
}

func (m *memory) chain(n uint32, below uint64, best *found) {
	for length := 0; n != 0 && length < same; length++ {
		h, l := m.head(n), m.lifeOf(n)
		passing := load32(&h.passing) != 0
		there := !passing || load64(&l.born) <= best.version && best.version < load64(&l.died)
		if there && h.rank < below {
			if h.rank > best.rank {
				best.number, best.rank, best.result = n, h.rank, *m.resultOf(n)
			}
			return
		}
		n = load32(&h.next)
	}
}

// A list is the oracle: a table as a plain list, in the order in which filters win.
type list []Filter

// named is a filter's place in the list; -1: it is not there.
func (l list) named(f Filter) int {
	mask := newKey(f.Mask)
	return slices.IndexFunc(l, func(o Filter) bool {
		return o.Priority == f.Priority && newKey(o.Mask) == mask &&
			newKey(o.Key).and(mask) == newKey(f.Key).and(mask)
	})
}

// change is Change, on a copy.
func (l list) change(c Change) (list, error) {
	at := l.named(c.Filter)
	switch {
	case c.Op == Delete && at < 0:
		return l, ErrMissing
	case c.Op == Delete:
		return slices.Delete(slices.Clone(l), at, at+1), nil
	case c.Op == Insert && at >= 0:
		return l, ErrExists
	case at >= 0:
		l = slices.Clone(l)
		l[at].Result = c.Result
		return l, nil
	}
	l = append(slices.Clone(l), c.Filter)
	slices.SortStableFunc(l, func(a, b Filter) int { return cmp.Compare(b.Priority, a.Priority) })
	return l, nil
}

func (l list) changeAll(changes []Change) (list, error) {
	now := l
	for _, c := range changes {
		var err error
		if now, err = now.change(c); err != nil {
			return l, err
		}
	}
	return now, nil
}

func (l list) replaced(filters []Filter) (list, error) {
	now, err := list{}.changeAll(changes(Insert, filters))
	if err != nil {
		return l, err
	}
	return now, nil
}

// matches lists the results of all filters that match.
func (l list) matches(k key) []Result {
	var all []Result
	for _, f := range l {
		if mask := newKey(f.Mask); newKey(f.Key).and(mask) == k.and(mask) {
			all = append(all, f.Result)
		}
	}
	return all
}

// first is the result of the first filter that matches.
func (l list) first(k key) Result {
	if all := l.matches(k); len(all) > 0 {
		return all[0]
	}
	return Result{}
}

// findAll lists the results of all matches, as a program does that calls filter_find() until it returns 0.
func (m *memory) findAll(table uint32, k key) []Result {
	var (
		all  []Result
		last *found
	)
	for {
		next := m.find(table, k, last)
		if next.number == 0 {
			return all
		}
		all = append(all, next.result)
		last = &next
	}
}

// sameAs compares a table with the oracle, in all ways in which it can be read.
func (l list) sameAs(t *Table, look []key) error {
	got := t.List()
	if len(got) != len(l) {
		return fmt.Errorf("the table has %d filters, and not %d", len(got), len(l))
	}
	for i, f := range l {
		mask := newKey(f.Mask)
		if g := got[i]; g.Priority != f.Priority || g.Result != f.Result ||
			newKey(g.Mask) != mask || newKey(g.Key) != newKey(f.Key).and(mask) {
			return fmt.Errorf("filter %d is %v, and not %v", i, g, f)
		}
	}
	for _, k := range look {
		want := l.matches(k)
		if found := t.filters.findAll(t.id, k); !slices.Equal(found, want) {
			return fmt.Errorf("key %x: a program finds %v, and not %v", k, short(found), short(want))
		}
		var all []Result
		for e := range t.Matches(k.bytes(t.bytes)) {
			all = append(all, e.Result)
		}
		if !slices.Equal(all, want) {
			return fmt.Errorf("key %x: Matches gives %v, and not %v", k, short(all), short(want))
		}
	}
	return nil
}

func short(results []Result) []byte {
	var all []byte
	for _, r := range results {
		all = append(all, r[0])
	}
	return all
}

func result(n int) Result { return Result{byte(n), byte(n >> 8), byte(n >> 16), 1} }

func TestAFilterIsFound(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	table := mustTable(t, f, 7, 14)
	all := Filter{Key: make([]byte, 14), Mask: make([]byte, 14), Priority: 1, Result: result(1)}
	exact := Filter{
		Key: []byte("abcdefghijklmn"), Mask: slices.Repeat([]byte{255}, 14), Priority: 2, Result: result(2),
	}
	must(t, table.Insert(all, exact))
	want, err := list{}.changeAll(changes(Insert, []Filter{all, exact}))
	must(t, err)
	must(t, want.sameAs(table, []key{newKey(exact.Key), {}}))
}
