package node

import (
	"testing"
	"time"
)

func TestLongestMeasurementsDoNotEmptyABucket(t *testing.T) {
	for _, cores := range []float64{0.001, 0.01, 0.05, 0.2, 1, 64} {
		cost, depth := bucket(cores)
		longest := uint64(samples*longestSample) * cost >> 16 // pay_work() in bpf/fastpath.h
		if longest > depth/4+1 {
			t.Errorf("%v cores: the bucket holds %v, and one measurement takes %v", cores,
				time.Duration(depth), time.Duration(longest))
		}
		if depth < uint64(20*time.Millisecond) {
			t.Errorf("%v cores: the bucket holds %v, and the clock moves by 10 ms", cores,
				time.Duration(depth))
		}
	}
	if cost, depth := bucket(0); cost != 0 || depth != 0 {
		t.Errorf("nothing is reserved: cost %d, depth %d", cost, depth)
	}
}
