package traffic

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Mix makes frames as Measure does, at the window's rate, and counts at each of two sinks what arrived. plain is the
// share of frames, from 0 to 1, that go to the first device without a body; the generator is of a mixed flow.
func (g *Generator) Mix(w Window, plain float64, sinks [2]*Sink) (offered float64, arrived [2]Seen, err error) {
	const of = 256
	if err := g.obj.Plain.Set(uint32(math.Round(plain * of))); err != nil {
		return 0, arrived, fmt.Errorf("set a generator: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, arrived, fmt.Errorf("read the clock: %w", err)
	}
	from := uint64(now.Nano()) + uint64(w.Warm)
	until := from + uint64(w.Long)
	for _, s := range sinks {
		if err := s.between(from, until); err != nil {
			return 0, arrived, err
		}
	}
	const most = 1e7 // frames a second that it makes at most
	rate := w.Rate
	if rate == 0 {
		rate = most
	}
	made, err := g.until(w.Rate, until, int(1.1*rate*(w.Warm+w.Long).Seconds()))
	if err != nil {
		return 0, arrived, err
	}
	for i, s := range sinks {
		if arrived[i], err = s.Seen(); err != nil {
			return 0, arrived, err
		}
	}
	return float64(made) / (w.Warm + w.Long).Seconds(), arrived, nil
}
