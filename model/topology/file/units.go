package file

import (
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Rate is a number of bits a second as users write it: 10Mbit, 1G, 2.5Gbps, 64000. Empty: not given; 0: no limit.
// Prefixes are decimal and a rate is always in bits: bps is bits a second here, other than for tc.
type Rate string

// PolicedRate is a Rate that a policer can have.
type PolicedRate string

// Burst is a number of bytes as users write it: 15000, 64KiB. Prefixes are binary. Empty: not given.
type Burst string

// QueueLength is how much a queue holds, as users write it: frames, such as 200, or bytes, such as 64KiB. Empty: not
// given.
type QueueLength string

// FrameRate is a number of frames a second as users write it: 500pps, 20kpps, 1000; or off. Empty: not given.
type FrameRate string

// Duration is a span of time as users write it: 10ms, 1.5s. Empty: not given.
type Duration string

// Percent is a share as users write it: 1%, 0.5. Empty: not given.
type Percent string

// Bytes is an amount of memory as users write it: 64MiB, 1g. Prefixes are binary, as Docker's. Empty: not given.
type Bytes string

// RateOf is the shortest way to write a rate.
func RateOf(r unit.Rate) Rate { return Rate(r.String()) }

// DurationOf writes a duration.
func DurationOf(d time.Duration) Duration { return Duration(d.String()) }

// Bits is the rate in bit/s; 0: no limit.
func (r Rate) Bits() (unit.Rate, error) {
	if r == "" {
		return 0, nil
	}
	return unit.ParseRate(string(r))
}

// Bits is the rate in bit/s; 0: nothing is dropped.
func (r PolicedRate) Bits() (unit.Rate, error) {
	bits, err := Rate(r).Bits()
	if err != nil {
		return 0, err
	}
	return bits, unit.CheckPolicedRate(bits)
}

// Count is the number of bytes; 0 where none is given.
func (b Burst) Count() (int64, error) {
	if b == "" {
		return 0, nil
	}
	return unit.ParseBurst(string(b))
}

// Value is the length; zero where none is given.
func (l QueueLength) Value() (unit.Length, error) {
	if l == "" {
		return unit.Length{}, nil
	}
	return unit.ParseLength(string(l))
}

// Frames is the number of frames a second; slice.NoStormControl for off, 0 where none is given.
func (r FrameRate) Frames() (int, error) {
	switch r {
	case "":
		return 0, nil
	case "off":
		return slice.NoStormControl, nil
	}
	return unit.ParseFrameRate(string(r))
}

// Duration is the span of time; 0 where none is given.
func (d Duration) Duration() (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	return unit.ParseDuration(string(d))
}

// Value is the share in per cent, 0 to 100.
func (p Percent) Value() (unit.Loss, error) {
	if p == "" {
		return 0, nil
	}
	return unit.ParseLoss(string(p))
}

// Count is the number of bytes.
func (b Bytes) Count() (int64, error) {
	if b == "" {
		return 0, nil
	}
	return unit.ParseSize(string(b))
}
