package filter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// For the race detector: lookups run while tables change, and each finds what was there in its version.
func TestLookupsRunWhileTablesChange(t *testing.T) {
	p := &plain{}
	f := p.open(t)
	g := newGenerator(4, 14, 8)
	table := mustTable(t, f, 1, 14)
	var (
		want     list
		versions sync.Map
		running  atomic.Bool
		readers  sync.WaitGroup
		looked   atomic.Int64
	)
	look := make([]key, 16)
	for i := range look {
		look[i] = g.key()
	}
	type seen struct {
		key int
		found
	}
	found := make([]map[seen]bool, 3)
	versions.Store(f.index.table[1].version, want)
	running.Store(true)
	for r := range found {
		found[r] = map[seen]bool{}
		readers.Go(func() {
			for n := r; running.Load(); n++ {
				p.running.RLock()
				got := f.find(1, look[n%len(look)], nil)
				p.running.RUnlock()
				got.number, got.rank = 0, 0
				found[r][seen{n % len(look), got}] = true
				looked.Add(1)
			}
		})
	}
	other := mustTable(t, f, 2, 14)
	for range 1000 {
		c := g.change(want, 60)
		next, err := want.change(c)
		must(t, err)
		want = next
		must(t, table.Apply(c))
		versions.Store(f.index.table[1].version, want)
		must(t, other.Set(g.filter()))
		if g.IntN(50) == 0 {
			must(t, f.Tidy())
		}
		for before := looked.Load(); looked.Load() < before+3; { // lookups come in between
			f.Usage()
		}
	}
	running.Store(false)
	readers.Wait()
	for _, all := range found {
		for s := range all {
			l, ok := versions.Load(s.version)
			if !ok || l.(list).first(look[s.key]) != s.result {
				t.Fatalf("version %d, key %x: %v", s.version, look[s.key], s.result[:4])
			}
		}
	}
}

func TestTablesCanBeChangedAtOnce(t *testing.T) {
	f := (&plain{}).open(t)
	var all sync.WaitGroup
	for id := range uint32(6) {
		all.Go(func() {
			if err := busy(f, id); err != nil {
				t.Errorf("table %d: %v", id, err)
			}
		})
	}
	all.Wait()
	must(t, f.Tidy())
	if u := f.Usage(); u.Filters != 0 || u.Leaving != 0 || u.Tables != 0 {
		t.Errorf("%+v", u)
	}
}

func busy(f *Filters, id uint32) error {
	table, err := f.Table(id, 16, Quota{Filters: 1000, Masks: 100})
	if err != nil {
		return err
	}
	g := newGenerator(uint64(id), 16, 30)
	want := list{}
	for range 300 {
		c := g.change(want, 100)
		if want, err = want.change(c); err != nil {
			return err
		}
		if err := table.Apply(c); err != nil {
			return err
		}
	}
	if got := len(table.List()); got != len(want) {
		return fmt.Errorf("%d filters, and not %d", got, len(want))
	}
	return table.Remove()
}
