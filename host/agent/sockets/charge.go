package sockets

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// costOfSecond is what a second of processor time costs, in bytes: a slice that does nothing else with its rate gets a
// twentieth of a core for its requests.
const costOfSecond = 20 * bytesPerSecond

// charge waits until the slice's rate has paid for the processor time of a request. The answer has been sent before,
// so that only later requests of the slice wait.
func (k *socket) charge(spent time.Duration) error {
	for cost := costOf(spent); cost > 0; cost -= burst {
		if err := k.rate.WaitN(k.ctx, min(cost, burst)); err != nil {
			return err
		}
	}
	return nil
}

// costOf gives the cost of processor time in bytes.
func costOf(spent time.Duration) int { return int(spent.Seconds() * costOfSecond) }

// processorTime measures the processor time that do takes in this goroutine. Time for which it waits, such as for a
// lock that another slice holds, is not counted. But while it waits it keeps a thread, of which there are not many:
// what may wait for long does so before (admit).
func processorTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before) // every Linux has this clock
	do()
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after)
	return time.Duration(after.Nano() - before.Nano())
}
