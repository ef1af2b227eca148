package fib

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkLookup measures a lookup inside a program: a million destinations looked up in a loop, less the same loop
// without the lookup. They are drawn evenly from all routes, which is the worst case: nothing is found in a cache;
// or, as traffic is, some much more often than others (Zipf's law, exponent 1.1). The median of the runs is reported
// as ns/lookup.
func BenchmarkLookup(b *testing.B) {
	for _, shape := range []string{"IPv4", "IPv4 random", "IPv6", "IPv6 random"} {
		for _, routes := range []int{10, 1000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d/evenly", shape, routes),
				func(b *testing.B) { benchmarkLookup(b, shape, routes, evenly) })
			b.Run(fmt.Sprintf("%s/%d/Zipf", shape, routes),
				func(b *testing.B) { benchmarkLookup(b, shape, routes, zipf) })
		}
	}
}

// A traffic draws indexes of routes.
type traffic func(r *rand.Rand, routes int) func() int

func evenly(r *rand.Rand, routes int) func() int { return func() int { return r.IntN(routes) } }

func zipf(r *rand.Rand, routes int) func() int {
	z := rand.NewZipf(r, 1.1, 1, uint64(routes-1))
	return func() int { return int(z.Uint64()) }
}

func benchmarkLookup(b *testing.B, shape string, routes int, t traffic) {
	b.Helper()
	m := newMachine(b)
	f := m.open()
	defer m.close(f)
	random, r := newRand(), mustRouter(b, f)
	prefixes := shapes[shape](routes, random)
	fill(b, r, prefixes)
	const count = 1 << 20
	draw := t(random, len(prefixes))
	addresses := make([]netip.Addr, count)
	for i := range addresses {
		addresses[i] = within(prefixes[draw()], random)
		m.address(i, addresses[i])
	}
	root, program := r.trie(addresses[0]).root, m.program(addresses[0])
	var with, without []time.Duration
	for b.Loop() {
		with = append(with, m.run(program, root, count))
		without = append(without, m.run(m.objects.LoopLookNowhere, root, count))
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2]) / count
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(with)-median(without), "ns/lookup")
	b.ReportMetric(float64(with[0]-without[0])/count, "best-ns")
	b.ReportMetric(float64(f.Usage().Nodes), "nodes")
	b.ReportMetric(float64(f.Usage().Bytes>>20), "MiB")
}

// BenchmarkLoad measures how long a million routes take into an empty router, and what they hold of this process's
// memory.
func BenchmarkLoad(b *testing.B) {
	for _, shape := range []string{"IPv4", "IPv6"} {
		b.Run(shape+"/1000000", func(b *testing.B) {
			prefixes := shapes[shape](1_000_000, newRand())
			for b.Loop() {
				b.StopTimer()
				m := newMachine(b)
				f := m.open()
				r := mustRouter(b, f)
				before := heap()
				b.StartTimer()
				fill(b, r, prefixes)
				b.StopTimer()
				b.ReportMetric(float64(heap()-before)/(1<<20), "heap-MiB")
				b.ReportMetric(float64(f.Usage().Bytes>>20), "map-MiB")
				runtime.KeepAlive(r)
				m.close(f)
				b.StartTimer()
			}
		})
	}
}

func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkManyRouters measures what 500 routers with 1000 routes each take.
func BenchmarkManyRouters(b *testing.B) {
	for _, shape := range []string{"IPv4", "IPv4 random", "IPv6", "IPv6 random"} {
		b.Run(shape, func(b *testing.B) {
			for b.Loop() {
				m := newMachine(b)
				f := m.open()
				before := heap()
				random := newRand()
				for range 500 {
					r, err := f.NewRouter(1)
					if err != nil {
						b.Fatal(err)
					}
					defer runtime.KeepAlive(r)
					fill(b, r, shapes[shape](1000, random))
				}
				b.ReportMetric(float64(heap()-before)/(1<<20), "heap-MiB")
				b.ReportMetric(float64(f.Usage().Bytes>>20), "map-MiB")
				m.close(f)
			}
		})
	}
}
