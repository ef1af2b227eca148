package chart

import (
	"math"
	"testing"
)

func TestQuantilesAreValuesThatWereMeasured(t *testing.T) {
	values := []float64{30, 10, 20, 40}
	for part, want := range map[float64]float64{0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.99: 40, 1: 40} {
		if have := Quantile(values, part); have != want {
			t.Errorf("quantile %v: %v, want %v", part, have, want)
		}
	}
	if values[0] != 30 {
		t.Error("the values were sorted in place")
	}
	if !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("nothing has a median")
	}
}

func TestDistributionRisesToAllOfTheValues(t *testing.T) {
	c := Distribution("x", []float64{3, 1, 2})
	if first, last := c.Points[0], c.Points[len(c.Points)-1]; first != (Point{1, 1}) || last != (Point{3, 100}) {
		t.Errorf("from %v to %v", first, last)
	}
	for i, p := range c.Points {
		if i > 0 && (p.X < c.Points[i-1].X || p.Y <= c.Points[i-1].Y) {
			t.Errorf("%v after %v", p, c.Points[i-1])
		}
	}
	if c := Distribution("none", nil); len(c.Points) != 0 {
		t.Errorf("nothing has points %v", c.Points)
	}
}

func TestSpreadIsMeanAndStandardDeviation(t *testing.T) {
	if mean, deviation := Spread([]float64{2, 4, 4, 4, 5, 5, 7, 9}); mean != 5 || deviation != 2 {
		t.Errorf("mean %v, deviation %v", mean, deviation)
	}
	if mean, deviation := Spread(nil); !math.IsNaN(mean) || !math.IsNaN(deviation) {
		t.Errorf("nothing has mean %v, deviation %v", mean, deviation)
	}
}

func TestCurvesLeaveOutWhatWasNotMeasured(t *testing.T) {
	var c Curve
	c.Add(1, math.NaN())
	c.Add(2, 5)
	if len(c.Points) != 1 || c.Points[0] != (Point{2, 5}) {
		t.Errorf("points %v", c.Points)
	}
	if have := Number(math.NaN()) + Number(12.345); have != "-12.3" {
		t.Errorf("%q", have)
	}
}
