package program

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestOthersSendTimesWhatTheyHaveReserved(t *testing.T) {
	const capacity = 500_000
	devices := []int{7, 8, 9}
	b := &Beside{Capacity: map[int]float64{FlowHops: capacity}}
	want := traffic.Cross{Rate: 10 * 0.1 * capacity, Device: 8, Sink: sinkAddress(1), Label: otherLabel,
		Labels: 100, Times: 10}
	got := b.cross(OthersKey{LongEarly, traffic.FIFO, reservedOthers(100, 10, true)}, devices)
	if math.Abs(got.Rate-want.Rate) > 1e-6 {
		t.Errorf("%v frames a second, want %v", got.Rate, want.Rate)
	}
	if got.Rate = want.Rate; got != want {
		t.Errorf("others are %+v, want %+v", got, want)
	}
	best := b.cross(OthersKey{LongEarly, traffic.FIFO, Others{Cross: 1000}}, devices)
	if best != (traffic.Cross{Rate: 1000, Device: 7, Sink: sinkAddress(0)}) {
		t.Errorf("best effort is %+v", best)
	}
}

// Each series is measured once a round, and beside each there is the one that it is compared with.
func TestSeriesOfOthersAreWhole(t *testing.T) {
	seen := map[OthersKey]bool{}
	for _, k := range OthersKeys() {
		if seen[k] {
			t.Errorf("%+v twice", k)
		}
		seen[k] = true
	}
	for k := range seen {
		alone := k
		alone.Others = Others{}
		if !seen[alone] {
			t.Errorf("%+v is compared with what is not measured", k)
		}
	}
}

// A flow gets through beside others by all cards. Frames of others keep their class on the way.
func TestFlowsArriveBesideOthers(t *testing.T) {
	steps := undone(t)
	stands, err := othersStands(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	for r, s := range stands {
		for row, device := range s.devices {
			c := traffic.Cross{Rate: 20_000, Device: device, Label: otherLabel, Labels: 100, Times: 10}
			testkit.Eventually(t, func() error {
				f, err := s.run(t.Context(), traffic.FIFO, c, 50*time.Millisecond)
				if err == nil && (f.Lost < 0 || f.Loss() > 0.5 || f.CrossArrived == 0 ||
					f.CrossArrived > f.Cross || f.ReservedArrived == 0 ||
					f.ReservedArrived > f.Reserved || f.Reserved > f.Cross/10+1000) {
					err = fmt.Errorf("%s, by card %d: %+v", r.Title(), row, f)
				}
				return err
			}, 5*time.Second, "frames")
		}
	}
}
