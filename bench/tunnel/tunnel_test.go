package tunnel

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var take = flag.Int("rounds", 1, "take so many `rounds`")

// TestEveryVariantCarriesFrames prints figures: with -v -rounds 10 they are worth reading.
func TestEveryVariantCarriesFrames(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgtunnel")
	c := Config{Rounds: *take, Sizes: []int{64, 1400}, Slices: []int{8}, Window: 20 * time.Millisecond}
	if *take > 1 {
		c = Default(*take)
	}
	result, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []rounds.Table{
		result.GoalTable(), result.FrameTable(), result.BitTable(), result.ScaleTable(), result.PairTable(),
		result.IsolationTable(),
	} {
		t.Log(table.Columns)
		for _, row := range table.Rows {
			t.Log(row)
		}
	}
	t.Log(result.Caveats())
	// Each series was tried before the first round, and its window failed if nothing came through.
	for _, w := range Variants {
		missing := slices.ContainsFunc(result.Missing, func(m Missing) bool { return m.What == w })
		if tried := slices.ContainsFunc(result.Series, func(s Series) bool {
			return s.Key == RateKey(w, 1400)
		}); tried == missing {
			t.Errorf("%s: tried %v, said to be missing %v", w, tried, missing)
		}
	}
}
