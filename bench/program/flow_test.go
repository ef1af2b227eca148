package program

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestFlowIsDescribed(t *testing.T) {
	at := func(sent, received int) traffic.Arrival {
		return traffic.Arrival{Sent: time.Duration(sent) * time.Microsecond,
			Received: time.Duration(received) * time.Microsecond}
	}
	got := describeFlow(traffic.TimedRun{Sent: 4, Cross: 100, CrossArrived: 50, Reserved: 10,
		ReservedArrived: 9,
		Arrivals:        []traffic.Arrival{at(0, 10), at(100, 114), at(300, 306)}}, time.Second/2)
	want := FlowRun{Sent: 4, Lost: 1, Rate: 6, Mean: 10, P99: 14, P999: 14, Jitter: 6, Cross: 200,
		CrossArrived: 100, Reserved: 20, ReservedArrived: 18}
	for _, v := range [][2]float64{{got.Mean, want.Mean}, {got.Jitter, want.Jitter}} {
		if math.Abs(v[0]-v[1]) > 1e-9 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	got.Mean, got.Jitter = want.Mean, want.Jitter
	if got != want || got.Loss() != 0.25 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if none := describeFlow(traffic.TimedRun{Sent: 2}, time.Second); !math.IsNaN(none.Mean) || none.Loss() != 1 {
		t.Errorf("got %+v of a flow that was lost", none)
	}
}

// undone are steps that are taken back when the test ends.
func undone(t *testing.T) *undo.Steps {
	t.Helper()
	testkit.Root(t)
	var steps undo.Steps
	t.Cleanup(func() {
		if err := steps.Run(); err != nil {
			t.Error(err)
		}
	})
	return &steps
}

// A flow and its cross traffic get through all routers, also those that are measured at rest.
func TestFlowsArrive(t *testing.T) {
	steps := undone(t)
	stands, err := flowStands(t.Context(), append(costRouters(), LongEarly, queued, unqueued), steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stands {
		testkit.Eventually(t, func() error {
			r, err := s.run(t.Context(), traffic.FIFO, traffic.Cross{Rate: 5_000}, 50*time.Millisecond)
			if err == nil && (r.Lost < 0 || r.Loss() > 0.5 || r.Mean <= 0 || r.P99 > r.P999 ||
				r.CrossArrived == 0 || r.CrossArrived > r.Cross) {
				err = fmt.Errorf("%s: %+v", s.router.Title(), r)
			}
			return err
		}, 30*time.Second, "frames")
	}
}

func TestQueueIsWhatACoreTakesMoreForAFrame(t *testing.T) {
	if got := perFrame(FlowRun{Rate: 10_000, CrossArrived: 490_000}); got != 2000 {
		t.Errorf("%v ns a frame, want 2000", got)
	}
	if got := perFrame(FlowRun{}); got != 0 {
		t.Errorf("%v ns for no frame", got)
	}
}

func TestRunsAreSummedUpAsInThePaper(t *testing.T) {
	of := func(r FlowRun) float64 { return r.Mean }
	mean, least, most := MeanOfRuns([]FlowRun{{Mean: 3}, {Mean: 1}, {Mean: 8}}, of)
	if mean != 4 || least != 1 || most != 8 {
		t.Errorf("mean %v, from %v to %v", mean, least, most)
	}
	if mean, least, most := MeanOfRuns(nil, of); !math.IsNaN(mean) || !math.IsNaN(least) || !math.IsNaN(most) {
		t.Errorf("no run has the mean %v, from %v to %v", mean, least, most)
	}
}

func TestWhatIsComparedAtRestIsMeasuredOneAfterTheOther(t *testing.T) {
	const together = 2
	for i := 0; i < len(CostRouters); i += together {
		a, b := CostRouters[i], CostRouters[i+1]
		if a.Routers != b.Routers || a.LSP != b.LSP {
			t.Errorf("%s is measured before %s", a.Title(), b.Title())
		}
		if a.By == ByLineCard && a != b.without() {
			t.Errorf("%s is compared with %s", b.Title(), a.Title())
		}
	}
}
