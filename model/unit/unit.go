// Package unit has the quantities of a network: rates, delays, shares of loss and sizes. Text is parsed here once, into
// a value within the limits of this package; nobody checks it again.
//
// Prefixes of rates are decimal and a rate is always in bits: bps is bits a second here, other than for tc(8). Prefixes
// of sizes are binary, as Docker's.
package unit

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
)

// Rate is in bit/s. 0: no limit.
type Rate uint64

// Loss is a share of frames in per cent, 0 to 100.
type Loss = float64

// The limits. A rate or a delay outside of them is refused wherever it is given: in a file, by the API, on the command
// line.
const (
	MinRate      Rate = 8                 // a byte a second: sch_htb counts bytes
	MaxRate      Rate = 1_000_000_000_000 // 1 Tbit/s
	MaxDelay          = time.Hour
	MaxFrames         = 1_000_000 // in a queue
	MaxFrameRate      = 10_000_000
	MinSize           = 1 << 20 // 1 MiB
	MaxSize           = 1 << 44 // 16 TiB

	MinPolicedRate Rate = 1000    // 1 kbit/s
	MinBurst            = 64      // bytes: the shortest frame
	MaxBurst            = 1 << 30 // 1 GiB
)

// Check refuses a rate that is out of range.
func (r Rate) Check() error {
	if r != 0 && (r < MinRate || r > MaxRate) {
		return fmt.Errorf("rate %s is out of range: %s to %s, or 0 for no limit", r, MinRate, MaxRate)
	}
	return nil
}

// String is the shortest way to write a rate: 10Mbit.
func (r Rate) String() string {
	for _, unit := range []struct {
		factor Rate
		name   string
	}{{1e12, "Tbit"}, {1e9, "Gbit"}, {1e6, "Mbit"}, {1e3, "kbit"}} {
		if r >= unit.factor && r%(unit.factor/1000) == 0 {
			return strconv.FormatFloat(float64(r)/float64(unit.factor), 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatUint(uint64(r), 10) + "bit"
}

// BytesPerSecond is at least 1 where there is a rate.
func (r Rate) BytesPerSecond() uint64 {
	if r == 0 {
		return 0
	}
	return max(uint64(r)/8, 1)
}

var ratePattern = regexp.MustCompile(`(?i)^([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:bit|bits|bps|b|bit/s|b/s)?$`)

// bytesPattern are rates whose B reads as bytes: 10MB is eight times 10Mbit to most people.
var bytesPattern = regexp.MustCompile(`B(?:ps|/s)?$`)

// ParseRate reads a number and a unit: 10Mbit, 1G, 2.5Gbps, 64000.
func ParseRate(text string) (Rate, error) {
	parts := ratePattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is not a rate: write a number and a unit, such as 10Mbit or 1G", text)
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rate: %w", text, err)
	}
	if bytesPattern.MatchString(text) {
		return 0, fmt.Errorf("%q may be bytes: a rate is in bits, so write %s%sbit", text, parts[1], parts[2])
	}
	factor := map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[strings.ToLower(parts[2])]
	bits := math.Round(number * factor)
	if bits > float64(MaxRate) || Rate(bits).Check() != nil {
		return 0, fmt.Errorf("rate %s is out of range: %s to %s, or 0 for no limit", text, MinRate, MaxRate)
	}
	return Rate(bits), nil
}

var frameRatePattern = regexp.MustCompile(`(?i)^([0-9]+(?:\.[0-9]+)?) ?([km]?)(?:pps|p/s|/s)?$`)

// ParseFrameRate reads a number of frames a second: 500pps, 20kpps, 1000.
func ParseFrameRate(text string) (int, error) {
	parts := frameRatePattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is no number of frames a second: write such as 500pps, 20kpps, or off", text)
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of frames a second: %w", text, err)
	}
	frames := math.Round(number * map[string]float64{"": 1, "k": 1e3, "m": 1e6}[strings.ToLower(parts[2])])
	if frames < 1 || frames > MaxFrameRate {
		return 0, fmt.Errorf("%s is out of range: 1pps to 10Mpps, or off", text)
	}
	return int(frames), nil
}

// ParseDuration reads a span of time, not negative: 10ms, 1.5s.
func ParseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		if _, numeric := strconv.ParseFloat(text, 64); numeric == nil {
			return 0, fmt.Errorf("%q lacks a unit: write %sms or %ss", text, text, text)
		}
		return 0, fmt.Errorf("%q is not a duration: write a number and a unit, such as 10ms or 1.5s", text)
	}
	if span < 0 {
		return 0, fmt.Errorf("duration %s is negative", text)
	}
	return span, nil
}

// ParseLoss reads a percentage: 1%, 0.5.
func ParseLoss(text string) (Loss, error) {
	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || math.IsNaN(value) {
		return 0, fmt.Errorf("%q is not a percentage: write such as 1%% or 0.5%%", text)
	}
	if value < 0 || value > 100 {
		return 0, fmt.Errorf("percentage %s is out of range: 0%% to 100%%", text)
	}
	return value, nil
}

// ParseSize reads an amount of memory in bytes: 64MiB, 1g.
func ParseSize(text string) (int64, error) {
	count, err := units.RAMInBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory: write such as 64MiB or 1GiB", text)
	}
	if count != 0 && (count < MinSize || count > MaxSize) {
		return 0, errors.New("memory " + text + " is out of range: 1MiB to 16TiB")
	}
	return count, nil
}

// ParseBurst reads the bytes that may come at once: 15000, 64KiB, 1m.
func ParseBurst(text string) (int64, error) {
	count, err := units.RAMInBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of bytes: write such as 15000 or 64KiB", text)
	}
	if count != 0 && CheckBurst(count) != nil {
		return 0, fmt.Errorf("burst %s is out of range: %d bytes to 1GiB, or 0 for the default", text, MinBurst)
	}
	return count, nil
}

// CheckPolicedRate refuses a rate that no policer can have.
func CheckPolicedRate(r Rate) error {
	if r != 0 && (r < MinPolicedRate || r > MaxRate) {
		return fmt.Errorf("rate %s is out of range: %s to %s, or 0 for no policer", r, MinPolicedRate, MaxRate)
	}
	return nil
}

// CheckBurst refuses a burst that is out of range.
func CheckBurst(bytes int64) error {
	if bytes != 0 && (bytes < MinBurst || bytes > MaxBurst) {
		return fmt.Errorf("burst %d is out of range: %d to %d bytes, or 0 for the default", bytes, MinBurst,
			MaxBurst)
	}
	return nil
}

// CheckDelay refuses a delay or a jitter that is out of range.
func CheckDelay(what string, d time.Duration) error {
	if d < 0 || d > MaxDelay {
		return fmt.Errorf("%s %v is out of range: 0s to %v", what, d, MaxDelay)
	}
	return nil
}

// CheckLoss refuses what is no percentage, NaN too.
func CheckLoss(l Loss) error {
	if !(l >= 0 && l <= 100) {
		return fmt.Errorf("loss %v is out of range: 0%% to 100%%", l)
	}
	return nil
}

// CheckFrames refuses a queue length that is out of range.
func CheckFrames(n int) error {
	if n < 0 || n > MaxFrames {
		return fmt.Errorf("queue %d is out of range: 0 to %d frames", n, MaxFrames)
	}
	return nil
}
