package tunnel

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/model/slice"
)

// Two slices have links between the same machines, each with a rate. What one sends has large frames; the other's
// flood has small ones.
const (
	reservedRate = 100e6 // bit/s
	reservedSize = 1400
	floodSize    = traffic.FrameSize
)

// isolation is what one slice sends, and what disturbs it.
type isolation struct {
	from, flood *traffic.Flood
	sink        *traffic.Sink
	flooded     bool
}

// addIsolation measures a slice alone, and beside another's flood.
func (b *bench) addIsolation(ctx context.Context, platforms [2]*platform) error {
	shape := slice.Shape{Rate: reservedRate}
	var flows [2]*traffic.Flood
	var sinks [2]*traffic.Sink
	for i, size := range []int{reservedSize, floodSize} {
		p, err := nodes(ctx, platforms, uint16(3+i), slice.EGRE, shape)
		if err != nil {
			return err
		}
		if flows[i], err = traffic.NewFlood(p.from, p.address, size); err != nil {
			return err
		}
		b.undo.Push(flows[i].Close)
		index, err := indexOf(p.to, pairNIC)
		if err != nil {
			return err
		}
		if sinks[i], err = traffic.NewHostSink(p.to, index); err != nil {
			return err
		}
		b.undo.Push(sinks[i].Close)
	}
	for _, m := range []Measure{Reserved, Lost} {
		for _, w := range []Variant{Alone, Flooded} {
			i := &isolation{flows[0], flows[1], sinks[0], w == Flooded}
			window := i.reserved
			if m == Lost {
				window = i.lost
			}
			if err := b.add(ctx, Key{Measure: m, Variant: w}, window); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserved sends more than the link has, and gives what arrives.
func (i *isolation) reserved(_ context.Context, d time.Duration) (rate float64, err error) {
	var took time.Duration
	err = i.during(func() error {
		if err := i.sink.Reset(); err != nil {
			return err
		}
		_, took, err = i.from.Send(max(4*d, 100*time.Millisecond)) // several of the clock's ticks
		return err
	})
	if err != nil {
		return 0, err
	}
	seen, err := i.sink.Seen()
	if seen.Took == 0 { // within a tick
		seen.Took = took
	}
	if err == nil {
		err = i.drained(everything)
	}
	if err != nil {
		return 0, err
	}
	return seen.Rate(), nil
}

// lost sends less than the link has, and gives the share that does not arrive.
func (i *isolation) lost(_ context.Context, d time.Duration) (share float64, err error) {
	const less = 0.9
	var sent int
	err = i.during(func() error {
		if err := i.sink.Reset(); err != nil {
			return err
		}
		sent, err = i.from.Pace(max(4*d, 100*time.Millisecond), less*reservedRate/8/reservedSize)
		return err
	})
	if err == nil {
		err = i.drained(sent)
	}
	if err != nil {
		return 0, err
	}
	seen, err := i.sink.Seen()
	return 1 - float64(seen.Frames)/float64(sent), err
}

// everything that was sent is more than arrives.
const everything = -1

// drained waits until so many have arrived, or no more come.
func (i *isolation) drained(frames int) error {
	const quiet = 50 * time.Millisecond
	for last, since := -1, time.Now(); ; time.Sleep(time.Millisecond) {
		seen, err := i.sink.Seen()
		if err != nil || seen.Frames == frames {
			return err
		}
		if seen.Frames != last {
			last, since = seen.Frames, time.Now()
		}
		if time.Since(since) > quiet {
			return nil
		}
	}
}

// during calls f on the sender's core, while the flood comes from another, if it shall.
func (i *isolation) during(f func() error) error {
	var over atomic.Bool
	ended := make(chan error, 1)
	if i.flooded {
		go func() {
			ended <- traffic.OnCPU(min(1, runtime.NumCPU()-1), func() error {
				for !over.Load() {
					if _, _, err := i.flood.Send(time.Millisecond); err != nil {
						return err
					}
				}
				return nil
			})
		}()
	} else {
		ended <- nil
	}
	err := traffic.OnCPU(core, f)
	over.Store(true)
	return errors.Join(err, <-ended)
}
