package path

import (
	"math"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/rounds"
)

func series(m Measure, n Network, routers int, values ...float64) Series {
	s := Series{Key: Key{Measure: m, Network: n, Routers: routers}}
	for round, v := range values {
		if !math.IsNaN(v) {
			s.Samples = append(s.Samples, Sample{Round: round, Value: v})
		}
	}
	return s
}

func TestRatioComparesWithinRounds(t *testing.T) {
	lost := math.NaN()
	r := Result{Counts: rounds.Counts{Rounds: 4}, Series: []Series{
		// The machine is twice as slow in the second half; the third round of one was thrown away.
		series(UDP, Fast, 1, 4, 4, lost, 2),
		series(UDP, Plain, 1, 2, 2, 1, 1),
	}}
	if got := r.Ratio(r.Series[0].Key, r.Series[1].Key); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := r.Ratio(r.Series[0].Key, Key{Measure: TCP}); !math.IsNaN(got) {
		t.Errorf("ratio to nothing is %v", got)
	}
	if got := r.Median(r.Series[1].Key); got != 1.5 {
		t.Errorf("median %v, want 1.5", got)
	}
}

func TestGoalsAreJudged(t *testing.T) {
	r := Result{Counts: rounds.Counts{Rounds: 1}, Series: []Series{
		series(NIC, Fast, 1, 4e6), series(NIC, Fast, 16, 1e6), series(NIC, Plain, 1, 2e6),
		series(NIC, Plain, 16, 0.1e6),
		series(ICMPTrip, Fast, 16, 10e-6), series(ICMPTrip, Plain, 16, 30e-6),
	}}
	got := map[string]Goal{}
	for _, g := range r.judge() {
		got[g.What] = g
	}
	for what, want := range map[string]struct {
		value   float64
		reached bool
	}{
		"NIC to NIC, 1 router, 64 B":              {2, false},
		"NIC to NIC, 16 routers, 64 B":            {10, true},
		"NIC to NIC, each router after the first": {50, true}, // 250 ns and 1,000 ns a frame
		"round trip, 16 routers, ICMP":            {1. / 3, true},
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
		Counts:  rounds.Counts{Rounds: 2, Windows: 9, Thrown: 1},
		Missing: []Missing{{"Open vSwitch", "it is not installed"}},
		Series: []Series{series(UDP, Fast, 4, 1e6, 3e6), series(UDP, Plain, 4, 1e6),
			series(TCP, Fast, 0, 25e9, 25e9)},
	}
	r.Series[0].Slow = 0.5
	table := r.SeriesTable()
	if got := strings.Join(table.Columns, "|"); got != "what|routers|unit|Pergola|kernel alone" {
		t.Errorf("columns %s", got)
	}
	for i, want := range []string{"UDP from a socket, 64 B|4|Mframes/s|2.00|1.00 (1.00)", "TCP|0|Gbit/s|25.0|"} {
		if got := strings.Join(table.Rows[i], "|"); got != want {
			t.Errorf("row %s, want %s", got, want)
		}
	}
	caveats := strings.Join(r.Caveats(), "\n")
	for _, want := range []string{"1 of 9 windows", "kernel alone: 1 of 2 rounds", "50 % of the frames",
		"Open vSwitch was not measured: it is not installed"} {
		if !strings.Contains(caveats, want) {
			t.Errorf("not said: %q in\n%s", want, caveats)
		}
	}
}
