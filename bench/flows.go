package main

import (
	"context"
	"fmt"
	"math"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
)

// flowPartition is figures 4 and 5 of QuaSAR: a flow beside cross traffic that overloads the router's core.
func flowPartition(ctx context.Context, l *lab) ([]row, error) {
	f, err := program.MeasureFlows(ctx, l.rounds)
	if f == nil {
		return nil, err
	}
	l.section = flowSection(f)
	return flowRows(f), err
}

// flowFigures are what is shown of a flow.
var flowFigures = []struct {
	name, unit string
	of         func(program.FlowRun) float64
	file       string // of the chart
	log        bool   // its axis
}{
	{"lost", "%", func(r program.FlowRun) float64 { return 100 * r.Loss() }, "flow-lost.svg", false},
	{"mean", "us", func(r program.FlowRun) float64 { return r.Mean }, "", false},
	{"99 %", "us", func(r program.FlowRun) float64 { return r.P99 }, "flow-latency.svg", true},
	{"99.9 %", "us", func(r program.FlowRun) float64 { return r.P999 }, "", false},
	{"jitter", "us", func(r program.FlowRun) float64 { return r.Jitter }, "flow-jitter.svg", true},
}

// finiteOf are the figures of all rounds in which there was something to be measured.
func finiteOf(runs []program.FlowRun, of func(program.FlowRun) float64) (all []float64) {
	for _, r := range runs {
		if v := of(r); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	return all
}

// Goals of a flow that has a reservation.
const (
	reservedLoss  = 1    // %, beside as much as a card gives
	reservedDelay = 0.5  // of the 99 % beside none, to that beside as much
	bestEffort    = 0.05 // of what the core does of the cross traffic without reservations
)

func flowRows(f *program.Flows) (rows []row) {
	for _, r := range program.FlowRouters {
		rows = append(rows, flowRowsOf(f, r)...)
	}
	return rows
}

func flowRowsOf(f *program.Flows, r program.FlowRouter) (rows []row) {
	last := program.CrossRates[len(program.CrossRates)-1]
	through := fmt.Sprintf("a flow through %s beside as much cross traffic as a card gives: ", r.Title())
	of := func(r program.FlowRouter, cross float64, figure func(program.FlowRun) float64) []float64 {
		return finiteOf(f.Runs[program.FlowKey{Router: r, Cross: cross}], figure)
	}
	for _, figure := range flowFigures {
		row := row{What: through + figure.name, Unit: figure.unit, Values: of(r, last, figure.of),
			Against: "beside none", Other: of(r, 0, figure.of)}
		switch {
		case !r.IsEarly():
		case figure.name == "lost":
			row.Most = reservedLoss
		case figure.name == "99 %":
			row.Ratio = reservedDelay
		}
		rows = append(rows, row)
	}
	if !r.IsEarly() {
		return rows
	}
	forwarded := func(r program.FlowRun) float64 { return r.CrossArrived / 1e6 }
	return append(rows, row{
		What: through + "cross traffic forwarded", Unit: "Mframes/s", Values: of(r, last, forwarded),
		Against: "where no flow has a reservation", Other: of(r.Plain(), last, forwarded),
		MoreIsBetter: true, Ratio: bestEffort,
	})
}

func flowSection(f *program.Flows) *chart.Section {
	s := &chart.Section{
		Title: "A flow beside cross traffic that overloads the router (figures 4 and 5 of QuaSAR)",
		Intro: fmt.Sprintf("%d rounds. The flow has %.0f frames a second, for %.1f s at each rate of the "+
			"cross traffic. All frames have 70 bytes and come in by one card, a veth pair, whose NAPI has "+
			"a thread on the core on which all is done that a router does.",
			f.Rounds, program.FlowRate, program.FlowWindow.Seconds()),
		Notes: append([]string{
			"The flow's frames have the time in them at which they were made; the sink, a program of XDP " +
				"behind the last wire, notes when they come. *Jitter* is the mean of |received " +
				"interval - sent interval| of frames that followed each other.",
			"A frame waits for the seven that the generator makes after it at most.",
			fmt.Sprintf("**Reservation**: early demultiplexing, with %.2f of the core for best effort "+
				"(docs/decisions/036-early-demultiplexing.md). The flow is an LSP of traffic class 5, "+
				"whose label each router swaps; the card's thread is a real-time one.",
				program.BestEffortShare),
			"Figures are medians over the rounds. *Lost* counts all frames that were made, also those " +
				"that did not fit into the card's ring.",
		}, f.Caveats()...),
	}
	t := chart.Table{Columns: []string{"router", "cross traffic, Mframes/s", "of it forwarded"}}
	for _, figure := range flowFigures {
		t.Columns = append(t.Columns, figure.name+", "+figure.unit)
	}
	charts := map[string]*chart.Chart{}
	for _, figure := range flowFigures {
		charts[figure.file] = &chart.Chart{File: figure.file,
			Title: "A flow beside cross traffic: " + figure.name,
			X:     "cross traffic, Mframes/s", Y: figure.unit, LogY: figure.log}
	}
	for _, r := range program.FlowRouters {
		curves := map[string]*chart.Curve{}
		for _, figure := range flowFigures {
			curves[figure.file] = &chart.Curve{Name: r.Title()}
		}
		for _, cross := range program.CrossRates {
			runs := f.Runs[program.FlowKey{Router: r, Cross: cross}]
			median := func(of func(program.FlowRun) float64) float64 {
				return rounds.Middle(finiteOf(runs, of))
			}
			offered := median(func(r program.FlowRun) float64 { return r.Cross / 1e6 })
			row := []string{r.Title(), chart.Number(offered),
				chart.Number(median(func(r program.FlowRun) float64 { return r.CrossArrived / 1e6 }))}
			for _, figure := range flowFigures {
				v := median(figure.of)
				row = append(row, chart.Number(v))
				if !math.IsNaN(offered) {
					curves[figure.file].Add(offered, v)
				}
			}
			t.Rows = append(t.Rows, row)
		}
		for file, c := range curves {
			charts[file].Curves = append(charts[file].Curves, *c)
		}
	}
	s.Tables = []chart.Table{t}
	for _, figure := range flowFigures {
		if figure.file != "" {
			s.Charts = append(s.Charts, *charts[figure.file])
		}
	}
	return s
}
