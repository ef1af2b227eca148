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
	meterScale = 16           // METER_SCALE in bpf/meter.h
	maxMeters  = 2 * MaxPorts // MAX_METERS in bpf/meter.h: the first MaxPorts are of ports
)

// record is the meter with full buckets.
func (m meter) record() objectMeter {
	cost := func(rate uint64) uint64 {
		if rate == 0 {
			return 0
		}
		return max(1, uint64(time.Second)<<meterScale/rate)
	}
	return objectMeter{PerFrame: cost(m.frames), PerByte: cost(m.bytes), Depth: uint64(m.depth)}
}

func (d *DataPath) setMeter(number uint32, m meter) error {
	if err := d.maps.Meters.Put(number, m.record()); err != nil {
		return fmt.Errorf("set meter %d: %w", number, err)
	}
	return nil
}
