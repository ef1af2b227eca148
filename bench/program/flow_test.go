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
	got := describeFlow(traffic.TimedRun{Sent: 4, Cross: 100, CrossArrived: 50,
		Arrivals: []traffic.Arrival{at(0, 10), at(100, 114), at(300, 306)}}, time.Second/2)
	want := FlowRun{Sent: 4, Lost: 1, Mean: 10, P99: 14, P999: 14, Jitter: 6, Cross: 200, CrossArrived: 100}
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

// A flow and its cross traffic get through all routers.
func TestFlowsArrive(t *testing.T) {
	testkit.Root(t)
	var steps undo.Steps
	defer func() {
		if err := steps.Run(); err != nil {
			t.Error(err)
		}
	}()
	stands, err := flowStands(t.Context(), &steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stands {
		testkit.Eventually(t, func() error {
			r, err := s.run(t.Context(), 20_000, 50*time.Millisecond)
			if err == nil && (r.Lost < 0 || r.Loss() > 0.5 || r.Mean <= 0 || r.P99 > r.P999 ||
				r.CrossArrived == 0 || r.CrossArrived > r.Cross) {
				err = fmt.Errorf("%s: %+v", s.router, r)
			}
			return err
		}, 5*time.Second, "frames")
	}
}
