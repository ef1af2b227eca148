package datapath

import (
	"fmt"
	"time"
)

// A meter lets so much pass in a second, and holds what passes in its depth: see bpf/meter.h.
type meter struct {
	frames uint64 // per second; 0: not bounded
	bytes  uint64 // per second; 0: not bounded
	depth  time.Duration
}

const (
	meterScale   = 16       // METER_SCALE in bpf/meter.h
	firstPolicer = MaxPorts // FIRST_POLICER in bpf/meter.h: the meters before are storm control's
)

// record is the meter with full buckets.
func (m meter) record() objectMeter {
	return objectMeter{PerFrame: cost(m.frames), PerByte: cost(m.bytes), Depth: uint64(m.depth)}
}

// cost is what one of so many a second takes of its bucket.
func cost(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return max(1, uint64(time.Second)<<meterScale/rate)
}

func (d *DataPath) setMeter(number uint32, m objectMeter) error {
	if err := d.maps.Meters.Put(number, m); err != nil {
		return fmt.Errorf("set meter %d: %w", number, err)
	}
	return nil
}
