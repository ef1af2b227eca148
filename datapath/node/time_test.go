package node

import (
	"testing"
	"time"
)

func TestLongestMeasurementsDoNotEmptyABucket(t *testing.T) {
	for _, cores := range []float64{0.001, 0.01, 0.05, 0.2, 1, 64} {
		cost, depth, longest := bucket(cores)
		for sharers := uint64(1); sharers < 100; sharers *= 7 { // begin_share() in bpf/fastpath.h
			depth, cost := max(depth, longest*sharers), cost*sharers
			takes := uint64(samples*longestSample) * cost >> 16 // pay_work()
			if takes > depth/4+1+sharers {
				t.Errorf("%v cores for %d: the bucket holds %v, and one measurement takes %v", cores,
					sharers, time.Duration(depth), time.Duration(takes))
			}
		}
		if depth < uint64(20*time.Millisecond) {
			t.Errorf("%v cores: the bucket holds %v, and the clock moves by 10 ms", cores,
				time.Duration(depth))
		}
	}
	if cost, depth, longest := bucket(0); cost != 0 || depth != 0 || longest != 0 {
		t.Errorf("nothing is reserved: cost %d, depth %d, longest %d", cost, depth, longest)
	}
}
