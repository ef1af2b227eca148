package rounds

import (
	"math"
	"testing"
)

func TestWhatIsComparedIsOfTheSameRound(t *testing.T) {
	// The machine is twice as slow in the last rounds; one window of each was disturbed.
	a := []Sample{{0, 4}, {1, 4}, {3, 2}}
	b := []Sample{{0, 2}, {2, 1}, {3, 1}}
	if got := Paired(a, b, func(a, b float64) float64 { return a / b }); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := Median(b); got != 1 {
		t.Errorf("median %v, want 1", got)
	}
	if got := Median(nil); !math.IsNaN(got) || Number(got) != "" {
		t.Errorf("nothing has the median %v", got)
	}
}
