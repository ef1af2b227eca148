package filter

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A history changes tables at random, and looks at every state that a program could meet.
type history struct {
	*rapid.T
	plain   *plain
	filters *Filters
	tables  map[uint32]*Table
	want    map[uint32]list
	bytes   map[uint32]int
	look    map[uint32][]key // keys to look for
	results int
}

// A crash is a panic that a test throws at a store, as if the process had died there.
type crash struct{}

func newHistory(t *rapid.T) *history {
	h := &history{
		T: t, plain: &plain{}, tables: map[uint32]*Table{}, want: map[uint32]list{}, bytes: map[uint32]int{},
		look: map[uint32][]key{},
	}
	h.filters = h.plain.open(t)
	return h
}

// Keys and masks are drawn from few patterns, so that filters overlap, and have the same key, or hash, often.
func (h *history) drawBytes(id uint32, label string) []byte {
	b := make([]byte, h.bytes[id])
	for i := range b {
		if i%8 == 0 || i == len(b)-1 {
			b[i] = rapid.SampledFrom([]byte{0, 0, 1, 255, 255, 128}).Draw(h.T, label)
		}
	}
	return b
}

func (h *history) drawFilter(id uint32) Filter {
	h.results++
	f := Filter{
		Key: h.drawBytes(id, "key"), Mask: h.drawBytes(id, "mask"), Result: result(h.results),
		Priority: rapid.SampledFrom([]uint32{0, 1, 1, 2, 1<<32 - 1}).Draw(h.T, "priority"),
	}
	if known := h.want[id]; len(known) > 0 && rapid.IntRange(0, 2).Draw(h.T, "known") > 0 {
		was := rapid.SampledFrom(known).Draw(h.T, "filter")
		f.Key, f.Mask, f.Priority = slices.Clone(was.Key), slices.Clone(was.Mask), was.Priority
	}
	return f
}

// otherKey is a key that hardly any other filter has.
func (h *history) otherKey(id uint32) []byte {
	b := make([]byte, h.bytes[id])
	for i := range b {
		b[i] = byte(h.results * (251 + i))
	}
	return b
}

func (h *history) drawTable() uint32 {
	id := rapid.Uint32Range(0, 2).Draw(h.T, "table")
	if h.bytes[id] == 0 {
		h.bytes[id] = rapid.SampledFrom([]int{1, 8, 14, 16, 17, 32, 33, 64}).Draw(h.T, "bytes")
		for range 6 {
			h.look[id] = append(h.look[id], newKey(h.drawBytes(id, "look")))
		}
	}
	if h.tables[id] == nil {
		h.tables[id] = mustTable(h, h.filters, id, h.bytes[id])
	}
	return id
}

// watch runs do, which makes the table `then`, and looks after each store: lookups find what was there before, or what
// is there after that, in all tables and for all keys at once. It reports whether the process died on the way.
func (h *history) watch(id uint32, then list, dies int, do func() error) (died bool, err error) {
	before, changed := h.filters.index.table[id].version, false
	h.filters.stored = func() {
		if changed = changed || h.filters.index.table[id].version != before; changed {
			h.want[id] = then
		}
		for table, look := range h.look {
			for _, k := range look {
				got, want := h.filters.find(table, k, nil).result, h.want[table].first(k)
				if got != want {
					h.Fatalf("table %d, key %x: %v, and not %v", table, k, got[:2], want[:2])
				}
			}
		}
		if dies--; dies == 0 {
			panic(crash{})
		}
	}
	defer func() {
		h.filters.stored = nil
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	return false, do()
}

// do does the same to the table and to the oracle. put are filters that the change brings, refused ones too.
func (h *history) do(id uint32, put, then list, wrong error, do func() error) {
	dies := 0
	if rapid.IntRange(0, 3).Draw(h.T, "dies") == 0 {
		dies = rapid.IntRange(1, 60).Draw(h.T, "store")
	}
	crowded := distinctMasks(slices.Concat(h.want[id], then, put)) > MaxTableMasks
	died, err := h.watch(id, then, dies, do)
	switch {
	case died:
		h.restart()
	case crowded && errors.Is(err, ErrFull): // and all is as it was
	case !errors.Is(err, wrong) || (err != nil) != (wrong != nil):
		h.Fatalf("error %v, and not %v", err, wrong)
	}
	h.compare()
}

func (h *history) restart() {
	h.filters = h.plain.open(h)
	h.tables = map[uint32]*Table{}
	for _, id := range h.filters.Tables() {
		h.tables[id] = mustTable(h, h.filters, id, h.bytes[id])
	}
}

func (h *history) compare() {
	filters, masks := 0, 0
	for id, l := range h.want {
		t := h.tables[id]
		if t == nil {
			if len(l) > 0 {
				h.Fatalf("table %d is gone", id)
			}
			continue
		}
		if err := l.sameAs(t, h.look[id]); err != nil {
			h.Fatalf("table %d: %v", id, err)
		}
		distinct := distinctMasks(l)
		if t.used != distinct {
			h.Fatalf("table %d has %d masks, and not %d", id, t.used, distinct)
		}
		filters, masks = filters+len(l), masks+distinct
	}
	if u := h.filters.Usage(); u.Filters != filters || u.Masks != masks {
		h.Fatalf("%d filters with %d masks are in use, and not %d with %d", u.Filters, u.Masks, filters, masks)
	}
}

func distinctMasks(l list) int {
	masks := map[key]bool{}
	for _, f := range l {
		masks[newKey(f.Mask)] = true
	}
	return len(masks)
}

func (h *history) drawChanges(id uint32) []Change {
	var all []Change
	count := rapid.IntRange(1, 6).Draw(h.T, "changes")
	if rapid.IntRange(0, 15).Draw(h.T, "many") == 0 {
		count = 150 // more than buckets have room for
	}
	for range count {
		c := Change{rapid.SampledFrom([]Op{Insert, Insert, Set, Delete}).Draw(h.T, "op"), h.drawFilter(id)}
		if count > 6 { // nearly all of these can be done
			c.Op = Set
			c.Key, c.Mask[0] = h.otherKey(id), 255
		}
		all = append(all, c)
	}
	return all
}

func (h *history) step() {
	id := h.drawTable()
	t := h.tables[id]
	switch rapid.IntRange(0, 13).Draw(h.T, "step") {
	default:
		changes := h.drawChanges(id)
		then, err := h.want[id].changeAll(changes)
		var put list
		for _, c := range changes {
			put = append(put, c.Filter)
		}
		h.do(id, put, then, err, func() error { return t.Apply(changes...) })
	case 10:
		var filters []Filter
		for _, c := range h.drawChanges(id) {
			filters = append(filters, c.Filter)
		}
		if rapid.Bool().Draw(h.T, "others stay") {
			filters = slices.Concat(filters, h.want[id])
		}
		then, err := h.want[id].replaced(filters)
		h.do(id, filters, then, err, func() error { return t.Replace(filters) })
	case 11:
		h.do(id, nil, h.want[id], nil, h.filters.Tidy)
	case 12:
		h.restart()
		h.compare()
	case 13:
		h.do(id, nil, list{}, nil, t.Remove)
		delete(h.tables, id)
		if slices.Contains(h.filters.Tables(), id) { // the process died on the way
			h.tables[id] = mustTable(h, h.filters, id, h.bytes[id])
		}
	}
}

func TestLookupsSeeTheTableBeforeOrAfterAChange(t *testing.T) { rapid.Check(t, playHistory) }

func FuzzTablesAreAsAList(f *testing.F) { f.Fuzz(rapid.MakeFuzz(playHistory)) }

func playHistory(t *rapid.T) {
	h := newHistory(t)
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		h.step()
	}
	h.empty()
}

// empty removes everything, and looks whether anything is left.
func (h *history) empty() {
	for _, t := range h.tables {
		must(h, t.Remove())
	}
	must(h, h.filters.Tidy())
	must(h, h.filters.Tidy())
	for _, f := range []*Filters{h.filters, h.plain.open(h)} {
		u := f.Usage()
		used, rest := f.used()
		if u.Tables != 0 || u.Filters != 0 || u.Masks != 0 || u.Leaving != 0 ||
			used != 0 || rest != 0 || f.ids.used != 0 || f.chains.chains != 0 {
			h.Fatalf("left: %+v, %d numbers, %d at rest, %d masks, %d chains",
				u, used, rest, f.ids.used, f.chains.chains)
		}
		if slices.Contains(f.spans.taken[:], true) || len(f.spans.rest) > 0 {
			h.Fatalf("words of orders are left")
		}
		for i := range f.chains.buckets {
			if b := f.chains.buckets[i]; b != (bucket{}) {
				h.Fatalf("bucket %d is left: %v", i, b)
			}
		}
	}
}
