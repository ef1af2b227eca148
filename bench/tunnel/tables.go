package tunnel

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Title is the name for people.
func (w Variant) Title() string {
	return map[Variant]string{
		Native: "native forwarding", Beside: "native, beside tunnels",
		Bridged: "kernel VXLAN, bridges, container", Direct: "kernel VXLAN in the container",
		OVS: "Open vSwitch in user space, keyed GRE", LAN: "Pergola, EGRE, LANs", EGRE: "Pergola, EGRE",
		VXLAN:         "Pergola, VXLAN",
		BridgedBeside: "kernel VXLAN, bridges, container, beside a line card",
		VXLANByTC:     "Pergola, VXLAN, no line card", EGREByTC: "Pergola, EGRE, no line card",
		One: "Pergola, EGRE, frames for one slice", Alone: "alone", Flooded: "beside a flood",
	}[w]
}

// GoalTable says what is promised and what is reached.
func (r *Result) GoalTable() rounds.Table {
	t := rounds.Table{Columns: []string{"what", "measured", "compared with", "result", "goal", "reached"}}
	for _, g := range r.Goals {
		reached := "yes"
		if !g.Reached {
			reached = "**missed**"
		}
		t.Rows = append(t.Rows, []string{g.What, g.Found, g.Against, rounds.Number(g.Value) + " " + g.Unit,
			g.Wanted(), reached})
	}
	return t
}

// Present are the variants of which there are rates, in the order of tables.
func (r *Result) Present() []Variant {
	return slices.DeleteFunc(slices.Clone(Variants), func(w Variant) bool {
		return !slices.ContainsFunc(r.Series, func(s Series) bool {
			return s.Measure == Rate && s.Variant == w
		})
	})
}

// FrameTable has the rates in Mframes/s, and in brackets what they are of native forwarding.
func (r *Result) FrameTable() rounds.Table {
	return r.bySize("Mframes/s", func(w Variant, size int) string {
		text := r.in(RateKey(w, size))
		if of := r.Ratio(RateKey(w, size), RateKey(Native, size)); w != Native && !math.IsNaN(of) {
			text += " (" + rounds.Number(of) + ")"
		}
		return text
	})
}

// BitTable has the rates in Gbit/s.
func (r *Result) BitTable() rounds.Table {
	return r.bySize("Gbit/s", func(w Variant, size int) string {
		return rounds.Number(Gbits(r.Median(RateKey(w, size)), size))
	})
}

func (r *Result) bySize(unit string, cell func(Variant, int) string) rounds.Table {
	t := rounds.Table{Columns: []string{unit}}
	for _, size := range r.Sizes {
		t.Columns = append(t.Columns, strconv.Itoa(size)+" B")
	}
	for _, w := range r.Present() {
		row := []string{w.Title()}
		for _, size := range r.Sizes {
			row = append(row, cell(w, size))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// PairTable has what was measured between nodes of two machines.
func (r *Result) PairTable() rounds.Table {
	t := rounds.Table{Columns: []string{
		"between two machines", "round trip, us", "more than the machines, us", "with a third between, us",
		"more than with two, us", "TCP, Gbit/s", "of kernel VXLAN",
	}}
	for _, w := range pairVariants {
		title := w.Title()
		switch w {
		case Native:
			title = "the machines themselves"
		case Beside:
			title = "the machines themselves, beside a line card"
		default:
		}
		trip, bare, further, tcp := Key{Measure: Trip, Variant: w}, Key{Measure: Trip, Variant: Native},
			Key{Measure: Far, Variant: w}, Key{Measure: TCP, Variant: w}
		more, of := "", ""
		if w != Native {
			more = rounds.Number(r.More(trip, bare) * 1e6)
		}
		if w != Bridged {
			of = rounds.Number(r.Ratio(tcp, Key{Measure: TCP, Variant: Bridged}))
		}
		t.Rows = append(t.Rows, []string{
			title, r.in(trip), more, r.in(further), rounds.Number(r.More(further, trip) * 1e6),
			r.in(tcp), of,
		})
	}
	return t
}

// IsolationTable has what a slice got of its rate.
func (r *Result) IsolationTable() rounds.Table {
	t := rounds.Table{Columns: []string{fmt.Sprintf("a slice with %d Mbit/s", int(reservedRate/1e6)),
		"arrives when it sends more, Mbit/s", "lost when it sends less, %"}}
	for _, w := range []Variant{Alone, Flooded} {
		t.Rows = append(t.Rows, []string{
			w.Title(), r.in(Key{Measure: Reserved, Variant: w}), r.in(Key{Measure: Lost, Variant: w}),
		})
	}
	return t
}

// ScaleTable has what depends on the number of slices.
func (r *Result) ScaleTable() rounds.Table {
	t := rounds.Table{Columns: []string{"slices on the host", "tunnels", "for all, Mframes/s", "of 1 slice",
		"for one, Mframes/s", "of 1 slice", "set up, s", "deleted, s"}}
	base := rate(EGRE, r.Sizes[0], 1)
	for _, n := range append([]int{1}, r.Slices...) {
		all, one := rate(EGRE, r.Sizes[0], n), rate(One, r.Sizes[0], n)
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(n), strconv.Itoa(2 * n), r.in(all), rounds.Number(r.Ratio(all, base)), r.in(one),
			rounds.Number(r.Ratio(one, base)),
			r.in(Key{Measure: SetUp, Variant: EGRE, Slices: n}),
			r.in(Key{Measure: Deletion, Variant: EGRE, Slices: n}),
		})
	}
	return t
}

// Caveats says what a reader must know of the figures.
func (r *Result) Caveats() []string {
	all := r.Counts.Caveats()
	for _, s := range r.Series {
		if n := len(s.Samples); n < r.Rounds && s.Measure != SetUp && s.Measure != Deletion {
			all = append(all, fmt.Sprintf("%s, %s, %d B, %d slices: %d of %d rounds "+
				"had a window without that.", s.Measure, s.Variant.Title(), s.Size, s.Slices,
				n, r.Rounds))
		}
	}
	for _, m := range r.Missing {
		all = append(all, fmt.Sprintf("%s was not measured: %s.", m.What.Title(), m.Why))
	}
	return all
}
