package unit_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/unit"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]unit.Rate{
		"0": 0, "8": 8, "64000": 64e3, "10Mbit": 10e6, "1G": 1e9, "2.5Gbps": 2.5e9, "1 kbit": 1e3,
		"1Tbit": 1e12, "9.6kb/s": 9600,
	} {
		if have, err := unit.ParseRate(text); err != nil || have != want {
			t.Errorf("%q: %d, %v, want %d", text, have, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is not a rate", "fast": "is not a rate", "-1": "is not a rate", "10MB": "may be bytes",
		"7": "out of range", "2Tbit": "out of range",
		strings.Repeat("9", 400): "not a rate",
	} {
		if have, err := unit.ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v, want %q", text, have, err, want)
		}
	}
}

func TestParseBurst(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "64": 64, "15000": 15000, "64KiB": 1 << 16, "64k": 1 << 16, "1GiB": 1 << 30,
	} {
		if have, err := unit.ParseBurst(text); err != nil || have != want {
			t.Errorf("%q: %d, %v, want %d", text, have, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is no number of bytes", "much": "is no number of bytes", "63": "out of range",
		"2GiB": "out of range",
	} {
		if have, err := unit.ParseBurst(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v, want %q", text, have, err, want)
		}
	}
}

func TestRateSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := unit.Rate(rapid.Uint64Range(uint64(unit.MinRate), uint64(unit.MaxRate)).Draw(t, "rate"))
		if have, err := unit.ParseRate(want.String()); err != nil || have != want {
			t.Errorf("%d is written %s and read %d, %v", want, want, have, err)
		}
	})
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		fine bool
	}{
		"no rate":        {unit.Rate(0).Check(), true},
		"slowest":        {unit.MinRate.Check(), true},
		"too slow":       {unit.Rate(7).Check(), false},
		"fastest":        {unit.MaxRate.Check(), true},
		"too fast":       {unit.Rate(math.MaxUint64).Check(), false},
		"longest":        {unit.CheckDelay("delay", time.Hour), true},
		"too long":       {unit.CheckDelay("delay", time.Hour+1), false},
		"negative delay": {unit.CheckDelay("jitter", -1), false},
		"all lost":       {unit.CheckLoss(100), true},
		"more than all":  {unit.CheckLoss(100.1), false},
		"NaN":            {unit.CheckLoss(math.NaN()), false},
		"short queue":    {unit.CheckFrames(1), true},
		"negative queue": {unit.CheckFrames(-1), false},
		"long queue":     {unit.CheckFrames(unit.MaxFrames + 1), false},
		"no policer":     {unit.CheckPolicedRate(0), true},
		"slow policer":   {unit.CheckPolicedRate(999), false},
		"fast policer":   {unit.CheckPolicedRate(unit.MaxRate), true},
		"negative burst": {unit.CheckBurst(-1), false},
		"default burst":  {unit.CheckBurst(0), true},
	} {
		if (c.err == nil) != c.fine {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}
