package store

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestOneHostIsTheLastToSettleASlice(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	spec := network("a", 3)
	for i, host := range []string{"h1", "h2", "h3"} {
		spec.Nodes[i].Host = host
	}
	mustPut(t, s, spec, 0)
	report := func(host string, generation int64) bool {
		if err := s.PutStatus(ctx, host, slice.Status{Slice: "a", Generation: generation,
			Settled: true}); err != nil {
			t.Error(err)
		}
		last, err := s.SettledBy(ctx, host, "a")
		if err != nil {
			t.Error(err)
		}
		return last
	}
	if report("h1", 1) || report("h2", 1) || !report("h3", 1) {
		t.Error("of three, one after the other, it was not the third")
	}
	mustPut(t, s, spec, 1)
	var last atomic.Int32
	var hosts sync.WaitGroup
	for _, host := range []string{"h1", "h2", "h3"} {
		hosts.Go(func() {
			if report(host, 2) {
				last.Add(1)
			}
		})
	}
	hosts.Wait()
	if last.Load() != 1 {
		t.Errorf("%d of three were the last", last.Load())
	}
}
