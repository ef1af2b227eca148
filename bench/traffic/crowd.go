package traffic

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// burst is how many frames a device of a crowd gets at once: waking the thread that polls it may cost more than a
// frame.
const burst = 8

// Crowd makes frames for so long, on the calling thread's core: for each device but the first so many a second, and for
// the first one at a rate, or with 0 as many as are taken, up to most frames a second. The generator is of a flow with
// a crowd. It says how many there were: for the first device, and for each of the others.
func (g *Generator) Crowd(long time.Duration, each, rate, most float64) (first int, others []int, err error) {
	others = make([]int, len(g.flow.Devices)-1)
	if err := g.obj.Turns.Set(uint64(0)); err != nil {
		return 0, nil, fmt.Errorf("set a generator: %w", err)
	}
	if err := g.obj.Apart.Set(uint64(1e9 * burst / (each * float64(len(others))))); err != nil {
		return 0, nil, fmt.Errorf("set a generator: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, nil, fmt.Errorf("read the clock: %w", err)
	}
	if rate > 0 {
		most = rate
	}
	most += each * float64(len(others))
	made, err := g.until(rate, uint64(now.Nano())+uint64(long), int(1.1*most*long.Seconds()))
	if err != nil {
		return 0, nil, err
	}
	var turns uint64
	if err := g.obj.Turns.Get(&turns); err != nil {
		return 0, nil, fmt.Errorf("read a generator: %w", err)
	}
	for i := range others {
		whole, rest := int(turns)/(burst*len(others)), int(turns)%(burst*len(others))
		others[i] = burst*whole + min(max(rest-burst*i, 0), burst)
	}
	return int(made - turns), others, nil
}
