package filter

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/mapmem"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package filter -output-stem lookup -output-suffix _test -target bpfel -type lookup -type order object testdata/lookup.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"

func TestMain(m *testing.M) { testkit.Main(m) }

const maxLookups = 1 << 16

// machine is real maps, and programs that look into them.
type machine struct {
	testing.TB
	objects objectObjects
	lookups *[maxLookups]objectLookup
	order   *objectOrder
	held    mapmem.Memory // the test's own
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	testkit.Root(t)
	testkit.LeakCheck(t, "filter_")
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{TB: t}
	testkit.LoadObject(t, spec, &m.objects)
	t.Cleanup(func() { must(t, m.held.Close()) })
	if m.lookups, err = mapmem.Value[[maxLookups]objectLookup](&m.held, m.objects.Lookups); err != nil {
		t.Fatal(err)
	}
	if m.order, err = mapmem.Value[objectOrder](&m.held, m.objects.Orders); err != nil {
		t.Fatal(err)
	}
	return m
}

// open opens the maps as another process would.
func (m *machine) open() *Filters {
	m.Helper()
	o := m.objects.objectMaps
	f, err := Open(Maps{Index: o.FilterIndex, Buckets: o.FilterBuckets, Chunks: o.FilterChunks, Hits: o.FilterHits})
	if err != nil {
		m.Fatal(err)
	}
	return f
}

func (m *machine) close(f *Filters) {
	m.Helper()
	must(m, f.Close())
}

// run looks keys up in a program, and says how long the whole took.
func (m *machine) run(p *ebpf.Program, table uint32, count int) time.Duration {
	m.Helper()
	m.order.Table, m.order.Count = table, uint32(count)
	result, took, err := p.Benchmark(make([]byte, 64), 1, nil)
	if err != nil || result != 0 {
		m.Fatalf("run: %d, %v", result, err)
	}
	return took
}

func TestProgramsFindWhatTheListHas(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	rounds := 20
	if testkit.InVM() { // its processor is emulated
		rounds = 5
	}
	for id, shape := range []struct{ bytes, masks int }{
		{1, 3}, {8, 1}, {14, 16}, {16, 100}, {32, 20}, {33, 16}, {64, 40}, {64, 250},
	} {
		g := newGenerator(1, shape.bytes, shape.masks)
		table := mustTable(t, f, uint32(id), shape.bytes)
		want := list{}
		for round := range rounds {
			var changes []Change
			for range 1 + g.IntN(100) {
				c := g.change(want, 600)
				var err error
				want, err = want.change(c)
				must(t, err)
				changes = append(changes, c)
			}
			if round%5 == 4 {
				must(t, table.Replace(want))
			} else {
				must(t, table.Apply(changes...))
			}
			m.compare(uint32(id), want, g)
		}
		if id%2 == 0 {
			must(t, table.Remove())
		}
	}
}

// compare looks random keys up, and those that filters have.
func (m *machine) compare(table uint32, want list, g *generator) {
	m.Helper()
	const count = 500
	for i := range count {
		k := g.key()
		if i%2 == 0 && len(want) > 0 {
			k = newKey(want[g.IntN(len(want))].Key)
		}
		m.lookups[i].Key.Word = k
	}
	m.run(m.objects.LoopLookUp, table, count)
	for i := range count {
		k := key(m.lookups[i].Key.Word)
		if got, want := m.lookups[i].Result, firstWord(want.first(k)); got != want {
			m.Fatalf("table %d, key %x: a program finds %x, and not %x", table, k, got, want)
		}
	}
	m.run(m.objects.LoopLookUpAll, table, count)
	for i := range count {
		k, all := key(m.lookups[i].Key.Word), uint64(0)
		matches := want.matches(k)
		for _, r := range matches[:min(8, len(matches))] {
			all = all<<8 | uint64(r[0])
		}
		if got := m.lookups[i].All; got != all {
			m.Fatalf("table %d, key %x: a program finds %x in turn, and not %x", table, k, got, all)
		}
	}
}

// While programs look filters up, they are changed: each lookup finds what was there in the version that it was in.
func TestProgramsSeeOneVersion(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	const keys, runs = 64, 400
	g := newGenerator(2, 14, 12)
	table := mustTable(t, f, 1, 14)
	var (
		want     = list{}
		versions = map[uint64]list{0: want}
		version  = f.index.table[1].version
		running  atomic.Bool
		started  = make(chan struct{})
		stopped  = make(chan error)
	)
	versions[version] = want
	for i := range maxLookups {
		if i < keys {
			m.lookups[i].Key.Word = g.key()
		} else {
			m.lookups[i].Key = m.lookups[i%keys].Key
		}
	}
	type seen struct{ version, result uint64 }
	var all [keys]map[seen]bool
	for i := range all {
		all[i] = map[seen]bool{}
	}
	running.Store(true)
	go func() {
		m.order.Table, m.order.Count = 1, 4096
		for n := 0; running.Load(); n++ {
			result, _, err := m.objects.LoopLookUp.Benchmark(make([]byte, 64), 1, nil)
			if err != nil || result != 0 {
				stopped <- fmt.Errorf("run: %d, %w", result, err)
				return
			}
			for i := range 4096 {
				all[i%keys][seen{m.lookups[i].Version, m.lookups[i].Result}] = true
			}
			if n == 0 {
				close(started)
			}
		}
		stopped <- nil
	}()
	<-started
	for n := range runs {
		var changes []Change
		for range 1 + g.IntN(20) {
			c := g.change(want, 200)
			var err error
			want, err = want.change(c)
			must(t, err)
			changes = append(changes, c)
		}
		if n%10 == 9 {
			must(t, table.Replace(want))
		} else {
			must(t, table.Apply(changes...))
		}
		if n%50 == 49 {
			must(t, f.Tidy())
		}
		versions[f.index.table[1].version] = want
	}
	running.Store(false)
	must(t, <-stopped)
	distinct := map[uint64]bool{}
	for i, seen := range all {
		k := key(m.lookups[i].Key.Word)
		for s := range seen {
			distinct[s.version] = true
			l, ok := versions[s.version]
			if want := firstWord(l.first(k)); !ok || s.result != want {
				t.Fatalf("key %x, version %d: found %x, and not %x", k, s.version, s.result, want)
			}
		}
	}
	if len(distinct) < 10 {
		t.Errorf("programs saw %d versions of %d", len(distinct), len(versions))
	}
}

func TestProgramsCountHits(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	defer m.close(f)
	table := mustTable(t, f, 1, 16)
	must(t, table.Insert(several(1, 3)...))
	const count = 30_000
	for i := range count {
		m.lookups[i].Key.Word = newKey(exact(i%4 + 1).Key)
	}
	m.order.Table, m.order.Count = 1, count
	done := make(chan error)
	for range 2 { // on two processors, where there are two
		go func() {
			_, _, err := m.objects.LoopLookUp.Benchmark(make([]byte, 64), 1, nil)
			done <- err
		}()
	}
	must(t, <-done)
	must(t, <-done)
	m.run(m.objects.LoopLookUpAll, 1, count)
	for i, e := range table.List() {
		if e.Hits != 3*count/4 {
			t.Errorf("filter %d: %d hits, and not %d", i, e.Hits, 3*count/4)
		}
	}
}

func TestTheNextProcessAdoptsRealMaps(t *testing.T) {
	m := newMachine(t)
	f := m.open()
	g := newGenerator(3, 32, 16)
	must(t, mustTable(t, f, 3, 16).Insert(several(0, 3000)...)) // several chunks
	want := list{}
	for range 300 {
		want, _ = want.change(g.change(want, 600))
	}
	must(t, mustTable(t, f, 5, 32).Insert(want...))
	m.compare(5, want, g)
	hits := uint64(0)
	for _, e := range mustTable(t, f, 5, 32).List() {
		hits += e.Hits
	}
	m.close(f)
	f = m.open()
	defer m.close(f)
	if got := f.Tables(); !slices.Equal(got, []uint32{3, 5}) {
		t.Fatalf("tables %v", got)
	}
	table := mustTable(t, f, 5, 32)
	must(t, want.sameAs(table, nil))
	for _, e := range table.List() {
		hits -= e.Hits
	}
	if hits != 0 || len(mustTable(t, f, 3, 16).List()) != 3000 {
		t.Errorf("%d hits are missing", hits)
	}
	must(t, mustTable(t, f, 3, 16).Remove())
	must(t, table.Insert(g.unlike(want)))
	m.compare(5, listOf(table), g)
}
