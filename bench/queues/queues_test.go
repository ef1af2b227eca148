package queues

import (
	"math"
	"testing"
	"time"
)

func TestShareErrorCountsWindowsInWhichAllQueuesAreBacklogged(t *testing.T) {
	r := Run{Names: []string{"a", "b"}, Samples: []Sample{
		{At: 0, Out: []uint64{0, 0}, Backlog: []uint64{1, 0}},
		{At: 1, Out: []uint64{500, 0}, Backlog: []uint64{1, 1}},                  // b was empty
		{At: 2, Out: []uint64{560, 40}, Backlog: []uint64{1, 1}},                 // counts: 60 and 40
		{At: 3, Out: []uint64{1560, 1040}, Backlog: []uint64{1, 1}, Stolen: 0.5}, // was disturbed
		{At: 5, Out: []uint64{1622, 1078}, Backlog: []uint64{1, 1}},              // counts: 62 and 38
	}}
	worst, span := r.ShareError([]int{3, 2})
	if want := 1 - 78./200/0.4; math.Abs(worst-want) > 1e-9 || span != 3*time.Second {
		t.Errorf("error %v over %v, want %v over 3s", worst, span, want)
	}
	if worst, _ := (Run{Samples: r.Samples[:2]}).ShareError([]int{3, 2}); !math.IsNaN(worst) {
		t.Errorf("error %v where no window counts", worst)
	}
}

func TestRateErrorIsThatOfThePortThatIsFurthestOff(t *testing.T) {
	r := Run{Names: []string{"a", "b"}, Samples: []Sample{
		{At: 0, Out: []uint64{0, 0}, Backlog: []uint64{1, 1}},
		{At: 2, Out: []uint64{200, 198}, Backlog: []uint64{1, 1}},
		{At: 4, Out: []uint64{200, 298}, Backlog: []uint64{0, 1}},
	}}
	if worst, span := r.RateError(800); math.Abs(worst-(1-298./400)) > 1e-9 || span != 6*time.Second {
		t.Errorf("error %v over %v", worst, span)
	}
	if rate := r.Rate(Out, 1, 2); rate != 400 {
		t.Errorf("rate %v bit/s", rate)
	}
}
