package tunnel

import (
	"flag"
	"testing"
	"time"

	"github.com/pergola-net/pergola/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var rounds = flag.Int("rounds", 1, "measure each thing so many `times`")

// TestEveryWayLetsFramesThrough prints figures: with -v -rounds 10 they are worth reading.
func TestEveryWayLetsFramesThrough(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgtunnel")
	c := Config{Rounds: *rounds, Sizes: []int{64, 512, 1400}, Window: 200 * time.Millisecond}
	if *rounds == 1 {
		c.Ways, c.Sizes, c.Window = []Way{Native, Beside, VXLAN, EGRE}, []int{64}, 20*time.Millisecond
	}
	result, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range result.Series {
		t.Logf("%-7s %4d bytes  %6.3f Mpps  %5.2f of native", s.Way, s.Size, s.Median()/1e6, s.Ratio())
	}
	t.Logf("%d tunnels in %v; %d windows, %d thrown away", result.Tunnels, result.SetUp, result.Windows, result.Thrown)
}
