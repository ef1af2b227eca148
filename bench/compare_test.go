package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/rounds"
)

// documentOf is what a build gives that takes so many seconds to start and reaches so many frames.
func documentOf(seconds, rate float64) *document {
	return &document{Scenarios: []*measurement{
		{Name: "star-100", Rows: []row{{What: "up", Unit: "s", Values: []float64{seconds}}}},
		{Name: pathScenario, Path: &path.Result{Series: []path.Series{
			{Key: path.Key{Measure: path.UDP, Network: path.Fast, Routers: 1}, Samples: []rounds.Sample{{Value: rate}}},
			{Key: path.Key{Measure: path.UDP, Network: path.Plain, Routers: 1}, Samples: []rounds.Sample{{Value: rate / 2}}},
		}}},
	}}
}

func TestComparisonFindsWhatIsWorse(t *testing.T) {
	before, now := newBuild("before", "/a"), newBuild("now", "/b")
	c := comparison{builds: [2]*build{before, now}, rounds: 3}
	for round, speed := range []float64{1, 2, 1} { // the machine is twice as fast in one round
		before.take(documentOf(1/speed, 1e6*speed), round)
		now.take(documentOf(1.1/speed, 0.98e6*speed), round)
	}
	result := &comparisonResult{Origin: origin{Rounds: 3}, Differences: c.differences()}
	table := result.table()
	for _, want := range []string{
		"1 of 3 figures of Pergola are worse by more than 3 %",
		"| star-100 | up, s | 1 | 1.1 | 0.909 | 0.909 to 0.909 | **worse** |",
		"| path | UDP from a socket, 64 B, 1 routers, Mframes/s | 1 | 0.98 | 0.980 | 0.980 to 0.980 |  |",
		"| path | UDP from a socket, 64 B, 1 routers, to the kernel alone, x | 2 | 2 | " +
			"1.000 | 1.000 to 1.000 |  |",
		"| path | UDP from a socket, 64 B, 1 routers (kernel alone), Mframes/s | 0.5 | 0.49 | 0.980 | " +
			"0.980 to 0.980 | control |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestComparisonPairsRoundsThatBothHave(t *testing.T) {
	r := figure{Unit: "s"}.row([]float64{1, math.NaN(), 4}, []float64{2, 3})
	if len(r.Values) != 1 || r.better() != 0.5 {
		t.Errorf("paired %v with %v, want the first round alone", r.Values, r.Other)
	}
}

func TestComparisonReplacesWhatWasMeasuredAgain(t *testing.T) {
	result := func(before string, scenarios ...string) *comparisonResult {
		c := &comparisonResult{Before: before}
		for _, s := range scenarios {
			c.Differences = append(c.Differences,
				difference{Scenario: s, What: "up", Unit: "s", Before: 1, Now: 1})
		}
		return c
	}
	d := &document{}
	for _, c := range []*comparisonResult{
		result("v1", "star-100", "grid-frr"), result("v2", "star-100"), result("v1", "star-100"),
		result("v2", "star-100"),
	} {
		d.putComparison(c)
	}
	var got []string
	for _, c := range d.Comparisons {
		for _, f := range c.Differences {
			got = append(got, c.Before+" "+f.Scenario)
		}
	}
	want := []string{"v1 grid-frr", "v1 star-100", "v2 star-100"}
	if !slices.Equal(got, want) {
		t.Errorf("the report has %v, want %v", got, want)
	}
}
