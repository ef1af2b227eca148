package file

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/pergola-net/pergola/model/slice"
)

// Rate is a number of bits a second as users write it: 10Mbit, 1G, 2.5Gbps, 64000. Empty: not given; 0: no limit.
// Prefixes are decimal and a rate is always in bits: bps is bits a second here, other than for tc.
type Rate string

// FrameRate is a number of frames a second as users write it: 500pps, 20kpps, 1000; or off. Empty: not given.
type FrameRate string

// Duration is a span of time as users write it: 10ms, 1.5s. Empty: not given.
type Duration string

// Percent is a share as users write it: 1%, 0.5. Empty: not given.
type Percent string

// Bytes is an amount of memory as users write it: 64MiB, 1g. Prefixes are binary, as Docker's. Empty: not given.
type Bytes string

const (
	maxRate      = 1_000_000_000_000 // 1 Tbit/s
	minRate      = 1_000
	maxFrameRate = 10_000_000
	// MaxDelay is the longest delay of a link.
	MaxDelay = 4 * time.Minute // netem counts 64 ns ticks in 32 bits
)

var ratePattern = regexp.MustCompile(`(?i)^([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:bit|bits|bps|b|bit/s|b/s)?$`)

// bytesPattern are rates whose B reads as bytes: 10MB is eight times 10Mbit to most people.
var bytesPattern = regexp.MustCompile(`B(?:ps|/s)?$`)

// RateOf is the shortest way to write a rate in bit/s.
func RateOf(bits uint64) Rate {
	for _, unit := range []struct {
		factor uint64
		name   string
	}{{1e12, "Tbit"}, {1e9, "Gbit"}, {1e6, "Mbit"}, {1e3, "kbit"}} {
		if bits >= unit.factor && bits%(unit.factor/1000) == 0 {
			return Rate(strconv.FormatFloat(float64(bits)/float64(unit.factor), 'f', -1, 64) + unit.name)
		}
	}
	return Rate(strconv.FormatUint(bits, 10))
}

// DurationOf writes a duration.
func DurationOf(d time.Duration) Duration { return Duration(d.String()) }

// Bits is the rate in bit/s; 0: no limit.
func (r Rate) Bits() (uint64, error) {
	if r == "" {
		return 0, nil
	}
	parts := ratePattern.FindStringSubmatch(string(r))
	if parts == nil {
		return 0, fmt.Errorf("%q is not a rate: write a number and a unit, such as 10Mbit or 1G", string(r))
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rate: %w", string(r), err)
	}
	if bytesPattern.MatchString(string(r)) {
		return 0, fmt.Errorf("%q may be bytes: a rate is in bits, so write %s%sbit", string(r), parts[1], parts[2])
	}
	factor := map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[strings.ToLower(parts[2])]
	bits := math.Round(number * factor)
	if bits != 0 && (bits < minRate || bits > maxRate) {
		return 0, fmt.Errorf("rate %s is out of range: 1kbit to 1Tbit, or 0 for no limit", string(r))
	}
	return uint64(bits), nil
}

var frameRatePattern = regexp.MustCompile(`(?i)^([0-9]+(?:\.[0-9]+)?) ?([km]?)(?:pps|p/s|/s)?$`)

// Frames is the number of frames a second; slice.NoStormControl for off, 0 where none is given.
func (r FrameRate) Frames() (int, error) {
	switch r {
	case "":
		return 0, nil
	case "off":
		return slice.NoStormControl, nil
	}
	parts := frameRatePattern.FindStringSubmatch(string(r))
	if parts == nil {
		return 0, fmt.Errorf("%q is no number of frames a second: write such as 500pps, 20kpps, or off", string(r))
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of frames a second: %w", string(r), err)
	}
	frames := math.Round(number * map[string]float64{"": 1, "k": 1e3, "m": 1e6}[strings.ToLower(parts[2])])
	if frames < 1 || frames > maxFrameRate {
		return 0, fmt.Errorf("%s is out of range: 1pps to 10Mpps, or off", string(r))
	}
	return int(frames), nil
}

// Duration is the span of time; 0 where none is given.
func (d Duration) Duration() (time.Duration, error) {
	if d == "" || d == "0" {
		return 0, nil
	}
	span, err := time.ParseDuration(string(d))
	if err != nil {
		if _, numeric := strconv.ParseFloat(string(d), 64); numeric == nil {
			return 0, fmt.Errorf("%q lacks a unit: write %sms or %ss", string(d), string(d), string(d))
		}
		return 0, fmt.Errorf("%q is not a duration: write a number and a unit, such as 10ms or 1.5s", string(d))
	}
	if span < 0 {
		return 0, fmt.Errorf("duration %s is negative", string(d))
	}
	return span, nil
}

// Value is the share in per cent, 0 to 100.
func (p Percent) Value() (float64, error) {
	if p == "" {
		return 0, nil
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(p), "%")), 64)
	if err != nil || math.IsNaN(value) {
		return 0, fmt.Errorf("%q is not a percentage: write such as 1%% or 0.5%%", string(p))
	}
	if value < 0 || value > 100 {
		return 0, fmt.Errorf("percentage %s is out of range: 0%% to 100%%", string(p))
	}
	return value, nil
}

// Count is the number of bytes.
func (b Bytes) Count() (int64, error) {
	if b == "" {
		return 0, nil
	}
	count, err := units.RAMInBytes(string(b))
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory: write such as 64MiB or 1GiB", string(b))
	}
	if count != 0 && (count < 1<<20 || count > 1<<44) {
		return 0, errors.New("memory " + string(b) + " is out of range: 1MiB to 16TiB")
	}
	return count, nil
}
