package tunnel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Goal is something that tunnels are to reach.
type Goal struct {
	What    string  `json:"what"`
	Found   string  `json:"found"`             // the median, with its unit
	Against string  `json:"against,omitempty"` // that of what it is compared with
	Value   float64 `json:"value"`             // what is judged
	Unit    string  `json:"unit"`              // "x" is a ratio
	Most    bool    `json:"most,omitempty"`    // it must not be above the bound, rather than below
	Bound   float64 `json:"bound"`
	Reached bool    `json:"reached"`
}

// Wanted is the goal in words.
func (g Goal) Wanted() string {
	if g.Most {
		return fmt.Sprintf("at most %g %s", g.Bound, g.Unit)
	}
	return fmt.Sprintf("at least %g %s", g.Bound, g.Unit)
}

// Scale is how many tunnels a machine is to carry, with two of them to a slice.
const Scale = 1000

// judge compares what was measured with what is promised. What was not measured is left out.
func (r *Result) judge() []Goal {
	var all []Goal
	add := func(g Goal) {
		if math.IsNaN(g.Value) {
			return
		}
		g.Reached = g.Value >= g.Bound
		if g.Most {
			g.Reached = g.Value <= g.Bound
		}
		all = append(all, g)
	}
	const small = 64
	one := rate(EGRE, small, 1)
	add(r.ratio("EGRE through a virtual router, 64 B", one, rate(Native, small, 0), " (native)", 1.5))
	for _, g := range r.wires() {
		add(g)
	}
	for _, n := range r.Slices {
		what, of := "frames for all in turn", rate(EGRE, small, n)
		if 2*n >= Scale { // what a lookup costs, rather than what is in the caches
			what, of = "frames for one", rate(One, small, n)
		}
		add(r.ratio(fmt.Sprintf("%d slices, %d tunnels on the host, %s, 64 B", n, 2*n, what), of, one,
			" (1 slice)", 0.85))
	}
	trip, bare := Key{Measure: Trip, Variant: EGRE}, Key{Measure: Trip, Variant: Native}
	add(Goal{
		What:  "round trip between nodes of two machines: what EGRE adds to that between the machines",
		Found: r.figure(trip), Against: r.figure(bare) + " (the machines themselves)",
		Value: r.More(trip, bare) * 1e6, Unit: "us", Most: true, Bound: 3,
	})
	further, along := Key{Measure: Far, Variant: EGRE}, Key{Measure: Far, Variant: Native}
	add(Goal{
		What:  "round trip, another machine with a router between: what its tunnel adds to that between two",
		Found: r.figure(further),
		Against: fmt.Sprintf("%s (two machines; native forwarding between adds %s us)", r.figure(trip),
			rounds.Number(r.More(along, bare)*1e6)),
		Value: r.More(further, trip) * 1e6, Unit: "us", Most: true, Bound: 3,
	})
	for _, w := range []Variant{EGRE, VXLAN, EGREByTC, VXLANByTC} {
		what := "TCP between nodes of two machines, " + strings.TrimPrefix(w.Title(), "Pergola, ")
		add(r.ratio(what, Key{Measure: TCP, Variant: w}, Key{Measure: TCP, Variant: Bridged},
			" (kernel VXLAN)", 1))
	}
	setUp := Key{Measure: SetUp, Variant: EGRE, Slices: Scale / 2}
	add(Goal{What: fmt.Sprintf("%d tunnels: set up and joined", Scale), Found: r.figure(setUp),
		Value: r.Median(setUp), Unit: "s", Most: true, Bound: 2})
	add(r.ratio("a reserved rate while another slice floods", Key{Measure: Reserved, Variant: Flooded},
		Key{Measure: Reserved, Variant: Alone}, " (alone)", 0.95))
	lost := Key{Measure: Lost, Variant: Flooded}
	add(Goal{
		What: "loss below a reserved rate while another slice floods, the worst round", Found: r.figure(lost),
		Value: 100 * r.worst(lost), Unit: "%", Most: true,
	})
	return all
}

func (r *Result) ratio(what string, of, to Key, against string, least float64) Goal {
	return Goal{What: what, Found: r.figure(of), Against: r.figure(to) + against, Value: r.Ratio(of, to), Unit: "x",
		Bound: least}
}

// wires: from 512 bytes on a wire is to be full where native forwarding fills it. There is one row for each wire: its
// shortest such frames.
func (r *Result) wires() []Goal {
	const from = 512
	var all []Goal
	for _, gigabits := range []float64{1, 10} {
		for _, size := range r.Sizes {
			line, bare := WireRate(gigabits*1e9, size, false), WireRate(gigabits*1e9, size, true)
			if size < from || !(r.Median(rate(Native, size, 0)) >= bare) {
				continue
			}
			full := r.Median(rate(EGRE, size, 1)) / line
			all = append(all, Goal{
				What: fmt.Sprintf("EGRE against a wire of %g Gbit/s, which "+
					"native forwarding fills, %d B", gigabits, size),
				Found:   r.figure(rate(EGRE, size, 1)),
				Against: rounds.Number(line/1e6) + " Mframes/s (wire)", Value: full,
				Unit: "x", Bound: 1,
			})
			break
		}
	}
	return all
}

// figure is a series' median with its unit.
func (r *Result) figure(k Key) string {
	unit, _ := k.Measure.Unit()
	return r.in(k) + " " + unit
}

// in is a series' median in its unit.
func (r *Result) in(k Key) string {
	_, factor := k.Measure.Unit()
	return rounds.Number(r.Median(k) * factor)
}

// Unit is the one for people, and how many of it are one of the series' own.
func (m Measure) Unit() (name string, factor float64) {
	switch m {
	case Rate:
		return "Mframes/s", 1e-6
	case Reserved:
		return "Mbit/s", reservedSize * 8 * 1e-6
	case TCP:
		return "Gbit/s", 1e-9
	case Trip, Far:
		return "us", 1e6
	case Lost:
		return "%", 100
	default:
		return "s", 1
	}
}

// MoreIsBetter reports whether a greater value is an improvement: it is for rates, not for times and losses.
func (m Measure) MoreIsBetter() bool { return m == Rate || m == Reserved || m == TCP }

// IsControl reports whether no part of Pergola carries the frames.
func (w Variant) IsControl() bool { return slices.Contains([]Variant{Native, Bridged, Direct, OVS}, w) }
