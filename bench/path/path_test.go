package path

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The sizes are the smallest that run every line: what is measured here says nothing.
func TestRunMeasuresEveryNetwork(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgpath")
	r, err := Run(t.Context(), Config{
		Rounds: 1, Routers: []int{0, 2}, Networks: []Network{Off, Mininet, OVS, Relay},
		Window: 50 * time.Millisecond,
		Progress: func(what string, _, _ int) {
			t.Log(what)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Missing {
		t.Logf("%s is missing: %s", m.What, m.Why)
	}
	for _, m := range []Measure{UDP, TCP, ICMPTrip, UDPTrip} {
		for _, n := range []Network{Fast, Off, Plain} {
			for _, routers := range []int{0, 2} {
				if r.find(Key{Measure: m, Network: n, Routers: routers}) == nil {
					t.Errorf("no series for %s, %s, %d routers", m, n, routers)
				}
			}
		}
	}
	for _, n := range []Network{Fast, Plain} {
		if s := r.find(Key{Measure: NIC, Network: n, Routers: 2}); s == nil || s.Slow > 0 {
			t.Errorf("from NIC to NIC, %s: %+v", n, s)
		}
	}
	if !slices.Equal(r.Hops(UDP), []int{0, 2}) {
		t.Errorf("hops %v", r.Hops(UDP))
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgpath")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Config{
		Rounds: 1000, Routers: []int{1}, Networks: []Network{Mininet, OVS}, Measures: []Measure{UDP, NIC},
		Window: time.Millisecond,
		Progress: func(_ string, done, _ int) {
			if done > 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	testkit.Root(t)
	for _, c := range []Config{{Rounds: 0}, {Rounds: 1, Routers: []int{-1}},
		{Rounds: 1, Routers: []int{MaxRouters + 1}}} {
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("took %+v", c)
		}
	}
}
