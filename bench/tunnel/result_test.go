package tunnel

import (
	"math"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/rounds"
)

func series(k Key, values ...float64) Series {
	s := Series{Key: k}
	for round, v := range values {
		s.Samples = append(s.Samples, rounds.Sample{Round: round, Value: v})
	}
	return s
}

func TestGoalsAreJudged(t *testing.T) {
	us := func(us float64) float64 { return us / 1e6 }
	r := Result{
		Counts: rounds.Counts{Rounds: 2}, Sizes: []int{64, 512, 1400}, Slices: []int{8},
		Series: []Series{
			series(rate(Native, 64, 0), 1e6, 2e6), series(rate(EGRE, 64, 1), 1.6e6, 3.2e6),
			series(rate(EGRE, 64, 8), 1.2e6, 2.4e6),
			// a wire of 1 Gbit/s takes 0.216 of them
			series(rate(Native, 512, 0), 1e6), series(rate(EGRE, 512, 1), 0.1e6),
			series(rate(Native, 1400, 0), 0.9e6), series(rate(EGRE, 1400, 1), 0.9e6), // of 10 Gbit/s, 0.853
			series(Key{Measure: Trip, Variant: Native}, us(10), us(20)),
			series(Key{Measure: Trip, Variant: EGRE}, us(12), us(23)),
			series(Key{Measure: Far, Variant: Native}, us(13), us(24)),
			series(Key{Measure: Far, Variant: EGRE}, us(16), us(26)),
			series(Key{Measure: TCP, Variant: Bridged}, 5e9, 4e9),
			series(Key{Measure: TCP, Variant: EGRE}, 4e9, 4e9),
			series(Key{Measure: TCP, Variant: VXLANByTC}, 6e9, 4e9),
			series(Key{Measure: Lost, Variant: Flooded}, 0, 0.01),
		},
	}
	got := map[string]Goal{}
	for _, g := range r.judge() {
		got[g.What] = g
	}
	for what, want := range map[string]struct {
		value   float64
		reached bool
	}{
		"EGRE through a virtual router, 64 B":                                                         {1.6, true},
		"EGRE against a wire of 1 Gbit/s, which native forwarding fills, 512 B":                       {0.1e6 / WireRate(1e9, 512, false), false},
		"EGRE against a wire of 10 Gbit/s, which native forwarding fills, 1400 B":                     {0.9e6 / WireRate(10e9, 1400, false), true},
		"8 slices, 16 tunnels on the host, frames for all in turn, 64 B":                              {0.75, false},
		"round trip between nodes of two machines: what EGRE adds to that between the machines":       {2.5, true},
		"round trip, another machine with a router between: what its tunnel adds to that between two": {3.5, false},
		"TCP between nodes of two machines, EGRE":                                                     {0.9, false},
		"TCP between nodes of two machines, VXLAN, no line card":                                      {1.1, true},
		"loss below a reserved rate while another slice floods, the worst round":                      {1, false},
	} {
		g, ok := got[what]
		if !ok || math.Abs(g.Value-want.value) > 1e-9 || g.Reached != want.reached {
			t.Errorf("%s: %+v, want %+v", what, g, want)
		}
		delete(got, what)
	}
	for what := range got {
		t.Errorf("%s is judged, though it was not measured", what)
	}
}

func TestTablesShowWhatIsThereAndWhatIsNot(t *testing.T) {
	r := Result{
		Counts: rounds.Counts{Rounds: 2, Wanted: 3}, Sizes: []int{64, 1400},
		Missing: []Missing{{OVS, "it is not installed"}},
		Series:  []Series{series(rate(Native, 64, 0), 1e6, 1e6), series(rate(EGRE, 64, 1), 2e6)},
	}
	table := r.FrameTable()
	for i, want := range []string{"native forwarding|1.00|", "Pergola, EGRE|2.00 (2.00)|"} {
		if got := strings.Join(table.Rows[i], "|"); got != want {
			t.Errorf("row %s, want %s", got, want)
		}
	}
	if got := r.BitTable().Rows[1][1]; got != "1.02" {
		t.Errorf("2 million frames of 64 bytes are %s Gbit/s", got)
	}
	caveats := strings.Join(r.Caveats(), "\n")
	for _, want := range []string{"after 2 of 3 rounds", "Pergola, EGRE, 64 B, 1 slices: 1 of 2 rounds",
		"keyed GRE was not measured: it is not installed"} {
		if !strings.Contains(caveats, want) {
			t.Errorf("not said: %q in\n%s", want, caveats)
		}
	}
}
