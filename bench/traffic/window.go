package traffic

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Window is a span of time in which frames are made, and counted: those that come later, out of queues, are not.
type Window struct {
	Warm time.Duration // frames are made and not counted yet
	Long time.Duration // they are counted
	Rate float64       // frames a second that are made; 0: as many as are taken
}

// Measured is what a window showed.
type Measured struct {
	Offered float64 // frames a second that the generator made, from the beginning to the end of the window
	Arrived float64 // frames a second that a sink counted
	Frames  int     // of Arrived
	TTL     int     // of the last frame
}

// Measure makes frames, on the calling thread's core, and counts what arrives at the sinks within the window. expected
// is at how many frames a second the generator may go at most: it bounds how many are made.
func (g *Generator) Measure(w Window, expected float64, sinks ...*Sink) (m Measured, err error) {
	if w.Rate > 0 {
		expected = w.Rate
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return m, fmt.Errorf("read the clock: %w", err)
	}
	begun := uint64(now.Nano())
	from := begun + uint64(w.Warm)
	until := from + uint64(w.Long)
	for _, s := range sinks {
		if err := s.between(from, until); err != nil {
			return m, err
		}
	}
	made, err := g.until(w.Rate, until, int(1.1*expected*(w.Warm+w.Long).Seconds()))
	if err != nil {
		return m, err
	}
	m.Offered = float64(made) / (w.Warm + w.Long).Seconds()
	for _, s := range sinks {
		seen, err := s.Seen()
		if err != nil {
			return m, err
		}
		m.Frames += seen.Frames
		if seen.Frames > 0 {
			m.TTL = seen.TTL
		}
	}
	m.Arrived = float64(m.Frames) / w.Long.Seconds()
	return m, nil
}

// until sends at a rate until a time, so many frames at most, and says how many there were.
func (g *Generator) until(rate float64, end uint64, most int) (made uint64, err error) {
	var interval uint32
	if rate > 0 {
		interval = uint32(1e9 / rate)
	}
	for _, set := range []func() error{
		func() error { return g.obj.Interval.Set(interval) },
		func() error { return g.obj.MakeUntil.Set(end) },
		func() error { return g.obj.Made.Set(uint64(0)) },
	} {
		if err := set(); err != nil {
			return 0, fmt.Errorf("set a generator: %w", err)
		}
	}
	if err := g.Send(max(most, 1<<10)); err != nil {
		return 0, err
	}
	err = g.obj.Made.Get(&made)
	return made, err
}

// between empties a sink, and bounds what it counts from then on by time: CLOCK_MONOTONIC, ns.
func (s *Sink) between(from, until uint64) error {
	if err := s.obj.CountFrom.Set(from); err != nil {
		return fmt.Errorf("set a sink: %w", err)
	}
	if err := s.obj.CountUntil.Set(until); err != nil {
		return fmt.Errorf("set a sink: %w", err)
	}
	return s.Reset()
}
