package program

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/lab/testkit"
)

// While one slice floods, frames of all the others arrive, by whichever core; the flood is held to its part.
func TestSlicesForwardBesideAFlood(t *testing.T) {
	testkit.Root(t)
	var steps undo.Steps
	defer func() {
		if err := steps.Run(); err != nil {
			t.Error(err)
		}
	}()
	g, err := openPlatform(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps.Push(g.undo.Run)
	stand, err := g.slicesStand(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	steps.Push(stand.undo.Run)
	const long = 200 * time.Millisecond
	if _, err := stand.capacity(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if err := stand.reserve(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sharing := range Sharings {
		testkit.Eventually(t, func() error {
			r, err := stand.run(t.Context(), sharing, 50_000, long)
			if err == nil && (r.Forwarded == 0 || r.Forwarded > r.Offered || len(r.Rates) != 3 ||
				r.Sent == 0 ||
				r.Lost < 0 || r.Loss() > 0.5) {
				err = fmt.Errorf("%s: %+v", sharing, r)
			}
			for _, rate := range r.Rates {
				if rate == 0 {
					err = errors.Join(err, fmt.Errorf("%s: of a slice no frame arrives: %v",
						sharing, r.Rates))
				}
			}
			return err
		}, 10*time.Second, "frames of all slices")
	}
}

func TestRateErrorIsThatOfTheSliceThatIsFurthestOff(t *testing.T) {
	r := SlicesRun{Sent: 200, Lost: 1, Rates: []float64{1.01 * SlicesRate, 0.97 * SlicesRate}}
	if got := r.RateError(); got < 0.0299 || got > 0.0301 || r.Loss() != 0.005 {
		t.Errorf("error %v, loss %v", got, r.Loss())
	}
}
