package filter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// spread and drawn are spread() and draw_key() in testdata/lookup.c.
func spread(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

func drawn(seed uint32, i, filters int) int {
	return int((spread(uint64(seed)<<32|uint64(i)) >> 32) * uint64(filters) >> 32)
}

// A shape is a table to measure with.
type shape struct {
	bytes, masks, filters int
	ranked                bool // each mask has a priority of its own, as with prefixes; else all have the same
}

func (s shape) String() string {
	name := fmt.Sprintf("%d_bits/%d_masks/%d", 8*s.bytes, s.masks, s.filters)
	if s.ranked {
		name += "/by_mask"
	}
	return name
}

// filter is filter n, whose key draw_key() makes. No mask covers another one: each leaves other bytes out.
func (s shape) filter(n int) Filter {
	var k key
	for i := range k {
		k[i] = spread(uint64(n)*words + uint64(i) + 1)
	}
	f := Filter{Key: k.bytes(s.bytes), Mask: slices.Repeat([]byte{255}, s.bytes)}
	mask := n % s.masks
	f.Mask[mask%s.bytes] = 0
	f.Mask[(mask+1+mask/s.bytes)%s.bytes] = 0
	if s.ranked {
		f.Priority = uint32(mask)
	}
	binary.NativeEndian.PutUint64(f.Result[:], uint64(n))
	return f
}

func (s shape) filterAll() []Filter {
	all := make([]Filter, s.filters)
	for n := range all {
		all[n] = s.filter(n)
	}
	return all
}

// BenchmarkLookup measures a lookup inside a program: keys looked up in a loop, less the same loop without the lookup.
// Each is that of a filter that is drawn evenly from all, each with a result of its own: the worst case for a cache.
// The median of the runs is reported as ns/lookup.
func BenchmarkLookup(b *testing.B) {
	for _, bytes := range []int{14, 32, 64} {
		for _, masks := range []int{1, 4, 16} {
			for _, filters := range []int{16, 1000, 100_000} {
				for _, ranked := range []bool{false, true} {
					s := shape{bytes, masks, filters, ranked}
					if masks > 1 || !ranked {
						b.Run(s.String(), func(b *testing.B) { benchmarkLookup(b, s) })
					}
				}
			}
		}
	}
}

func benchmarkLookup(b *testing.B, s shape) {
	b.Helper()
	m := newMachine(b)
	f := m.open()
	defer m.close(f)
	must(b, mustTable(b, f, 1, s.bytes).Insert(s.filterAll()...))
	must(b, f.Tidy())
	const count = 1 << 16
	run := func(p *ebpf.Program) time.Duration {
		m.order.Filters = uint32(s.filters)
		m.order.Seed++
		return m.run(p, 1, count)
	}
	run(m.objects.LoopLookUpAny)
	sum := uint64(0)
	for i := range count {
		sum += uint64(drawn(m.order.Seed, i, s.filters))
	}
	if m.order.Sum != sum {
		b.Fatalf("the programs find other filters: %d, and not %d", m.order.Sum, sum)
	}
	var with, without []time.Duration
	for b.Loop() {
		with = append(with, run(m.objects.LoopLookUpAny))
		without = append(without, run(m.objects.LoopLookNowhere))
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(with[len(with)/2]-without[len(without)/2])/count, "ns/lookup")
	b.ReportMetric(float64(with[0]-without[0])/count, "least-ns")
}

// BenchmarkUpdate measures how long filters take to come and go, in batches of a size, in a table that has 100,000 and
// stays as large.
func BenchmarkUpdate(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%d_at_once", size), func(b *testing.B) {
			m := newMachine(b)
			f := m.open()
			defer m.close(f)
			s := shape{bytes: 32, masks: 16, filters: 100_000}
			table := mustTable(b, f, 1, s.bytes)
			must(b, table.Insert(s.filterAll()...))
			next, updates := 0, 0
			for b.Loop() {
				batch := make([]Change, 0, 2*size)
				for range size {
					batch = append(batch, Change{Delete, s.filter(next)})
					batch = append(batch, Change{Insert, s.filter(next + s.filters)})
					next++
				}
				must(b, table.Apply(batch...))
				updates += len(batch)
			}
			b.ReportMetric(float64(updates)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}

// BenchmarkReplace measures the replacement of a table by another one, all of whose filters are other ones.
func BenchmarkReplace(b *testing.B) {
	m := newMachine(b)
	f := m.open()
	defer m.close(f)
	s := shape{bytes: 32, masks: 16, filters: 100_000}
	table := mustTable(b, f, 1, s.bytes)
	var tables [2][]Filter
	for n := range 2 * s.filters {
		tables[n/s.filters] = append(tables[n/s.filters], s.filter(n))
	}
	n := 0
	for b.Loop() {
		must(b, table.Replace(tables[n%2]))
		n++
	}
}
