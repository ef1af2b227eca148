package sockets

import (
	"context"
	"testing"
	"time"
)

func TestProcessorTimeOfARequestUsesUpTheRateOfItsSlice(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	k := &socket{share: newShare(), ctx: ctx}
	if err := k.charge(5 * time.Millisecond); err != nil { // less than the burst pays for
		t.Fatal(err)
	}
	if left := k.rate.Tokens(); left > burst/2 {
		t.Errorf("%.0f of %d bytes are left after 5 ms of work", left, burst)
	}
	cancel()
	if k.charge(time.Hour) == nil {
		t.Error("an hour of work was paid for at once")
	}
}

func TestProcessorTimeCountsWorkOnly(t *testing.T) {
	const work = 20 * time.Millisecond
	if spent := processorTime(func() {
		for start := time.Now(); time.Since(start) < work; {
		}
	}); spent <= 0 || spent > 10*work {
		t.Errorf("work of %s took %s", work, spent)
	}
	if spent := processorTime(func() { <-time.After(work) }); spent >= work {
		t.Errorf("a wait of %s took %s", work, spent)
	}
}
