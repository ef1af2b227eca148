package sliver

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// BenchmarkSlivers makes, starts and deletes plain nodes, all at once as the agent does: PERGOLA_BENCH_SLIVERS of
// them, 100 by default.
func BenchmarkSlivers(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("PERGOLA_BENCH_SLIVERS"))
	if err != nil {
		n = 100
	}
	r := newRuntime(b)
	prepare(b, r)
	all := func(do func(ID) error) time.Duration {
		start := time.Now()
		var g errgroup.Group
		for i := range n {
			g.Go(func() error { return do(ID{testSlice, fmt.Sprintf("h%d", i)}) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var up, list, down time.Duration
	for b.Loop() {
		up += all(func(id ID) error {
			if _, err := r.Create(b.Context(), spec(id.Node)); err != nil {
				return err
			}
			return r.Start(b.Context(), id)
		})
		start := time.Now()
		if seen, err := r.List(); err != nil || len(seen) != n {
			b.Fatal(len(seen), err)
		}
		list += time.Since(start)
		down += all(func(id ID) error { return r.Delete(b.Context(), id) })
	}
	b.ReportMetric(up.Seconds()/float64(b.N), "s/up")
	b.ReportMetric(list.Seconds()/float64(b.N), "s/list")
	b.ReportMetric(down.Seconds()/float64(b.N), "s/down")
}
