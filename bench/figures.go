package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/tunnel"
)

// figure names one measured quantity, in the words of the report.
type figure struct {
	Scenario string `json:"scenario"`
	What     string `json:"what"`
	Unit     string `json:"unit"`
	// MoreIsBetter says which direction is an improvement.
	MoreIsBetter bool `json:"more_is_better,omitempty"`
	// Control marks what does not depend on Pergola, for instance the kernel alone: it shows how steady the machine
	// was.
	Control bool `json:"control,omitempty"`
}

// reading is a figure with its median in one run.
type reading struct {
	figure
	value float64
}

// measuredPart is what differs from run to run in the name of a figure.
var measuredPart = regexp.MustCompile(` \(\d+ in maps\)`)

// readings lists the medians of all figures of a document.
func (d *document) readings() []reading {
	var all []reading
	for _, m := range d.Scenarios {
		for _, r := range m.Rows {
			if len(r.Values) == 0 {
				continue
			}
			f := figure{Scenario: m.Name, What: measuredPart.ReplaceAllString(r.What, ""), Unit: r.Unit,
				MoreIsBetter: r.MoreIsBetter}
			all = append(all, reading{f, rounds.Middle(r.Values)})
		}
		if m.Path != nil {
			all = append(all, pathReadings(m.Name, m.Path)...)
		}
		if m.Tunnels != nil {
			all = append(all, tunnelReadings(m.Name, m.Tunnels)...)
		}
	}
	return all
}

// pathReadings lists the medians of all series. Each series of the fast path is followed by its share of the kernel
// alone in the same rounds, which depends less on the speed of the machine in that minute.
func pathReadings(scenario string, r *path.Result) []reading {
	var all []reading
	for _, s := range r.Series {
		if len(s.Samples) == 0 {
			continue
		}
		unit, factor := s.Measure.Unit()
		what := fmt.Sprintf("%s, %d routers", s.Measure.Title(), s.Routers)
		if s.Routes > 0 {
			what += fmt.Sprintf(", %d routes", s.Routes)
		}
		f := figure{Scenario: scenario, What: what, Unit: unit, MoreIsBetter: !s.Measure.IsTime()}
		f.Control = s.Network != path.Fast && s.Network != path.Off
		if s.Network != path.Fast {
			f.What += fmt.Sprintf(" (%s)", s.Network.Title())
		}
		all = append(all, reading{f, rounds.Median(s.Samples) * factor})
		if s.Network != path.Fast {
			continue
		}
		alone := s.Key
		alone.Network = path.Plain
		if ratio := r.Ratio(s.Key, alone); ratio > 0 { // false for NaN, where the kernel alone was not measured
			f.What, f.Unit = f.What+", to the kernel alone", "x"
			all = append(all, reading{f, ratio})
		}
	}
	for _, g := range r.Goals {
		if g.To.Network == path.Fast { // others are the ratios to the kernel alone
			all = append(all, reading{figure{Scenario: scenario, What: g.What, Unit: g.Unit,
				MoreIsBetter: g.Most == 0}, g.Value})
		}
	}
	return all
}

// tunnelReadings lists the medians of all series.
func tunnelReadings(scenario string, r *tunnel.Result) []reading {
	var all []reading
	for _, s := range r.Series {
		if len(s.Samples) == 0 {
			continue
		}
		var what strings.Builder
		fmt.Fprintf(&what, "%s, %s", s.Measure, cmp.Or(string(s.Variant), "all"))
		if s.Size > 0 {
			fmt.Fprintf(&what, ", %d bytes", s.Size)
		}
		if s.Slices > 1 {
			fmt.Fprintf(&what, ", %d slices", s.Slices)
		}
		unit, factor := s.Measure.Unit()
		f := figure{
			Scenario: scenario, What: what.String(), Unit: unit, MoreIsBetter: s.Measure.MoreIsBetter(),
			Control: s.Variant.IsControl(),
		}
		all = append(all, reading{f, rounds.Median(s.Samples) * factor})
	}
	return all
}
