package tunnel

import (
	"context"
	"fmt"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
)

// core is the sender's. What it sends is forwarded there, too, but for what Open vSwitch's daemon does.
const core = 0

// forwarding measures the rate at which frames get through a machine.
type forwarding struct {
	generator *traffic.Generator
	sink      *traffic.Sink
	offered   float64 // frames/s that the machine took last, though it may have lost most
}

func (f *forwarding) window(_ context.Context, d time.Duration) (float64, error) {
	const (
		least  = 1 << 15 // each run of the generator idles about 25 ms
		atMost = 1 << 24
	)
	frames := min(max(least, int(f.offered*d.Seconds())), atMost)
	if err := f.sink.Reset(); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := traffic.OnCPU(core, func() error { return f.generator.Send(frames) }); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	f.offered = float64(frames) / took.Seconds()
	seen, err := f.seen()
	if err != nil {
		return 0, err
	}
	const ttl = 63 // one router
	switch {
	case seen.Frames == 0:
		return 0, fmt.Errorf("of %d frames none arrived", frames)
	case seen.TTL != ttl:
		return 0, fmt.Errorf("a frame has TTL %d, not %d", seen.TTL, ttl)
	case seen.Took == 0: // within a tick
		seen.Took = took
	}
	return seen.Rate(), nil
}

// seen waits for the first frame: a daemon may not have come to it yet.
func (f *forwarding) seen() (seen traffic.Seen, err error) {
	const patience = 2 * time.Second
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(time.Millisecond) {
		if seen, err = f.sink.Seen(); err != nil || seen.Frames > 0 {
			return seen, err
		}
	}
	return seen, nil
}
