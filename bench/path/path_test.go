package path

import (
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The sizes are the smallest that run every line: what is measured here says nothing.
func TestRunMeasuresEveryNetwork(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgpath")
	r, err := Run(t.Context(), Config{
		Rounds: 1, Routers: []int{0, 2}, Networks: []Network{Off, Mininet, OVS}, Window: 5 * time.Millisecond, Progress: func(what string, _, _ int) { t.Log(what) },
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
	if !slices.Equal(r.Hops(UDP), []int{0, 2}) {
		t.Errorf("hops %v", r.Hops(UDP))
	}
}
