package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
)

// Goals of figure 10, in us.
const (
	meanGoal  = 100
	sigmaGoal = 200
)

// programLatency is figure 10 of SPP: pings through loaded routers of eight slices.
func programLatency(ctx context.Context, l *lab) ([]row, error) {
	t, err := program.MeasureLatency(ctx, l.rounds)
	if t == nil {
		return nil, err
	}
	l.section = latencySection(t)
	return latencyRows(t), err
}

func latencyRows(t *program.Latency) (rows []row) {
	for _, payload := range program.LatencyPayloads {
		for _, c := range []struct {
			what string
			of   func(program.Trips) float64
			most float64
		}{
			{"mean round trip", program.Trips.Mean, meanGoal},
			{"mean and three standard deviations", program.Trips.ThreeSigma, sigmaGoal},
		} {
			values := func(v program.Variant) (all []float64) {
				for _, trips := range t.Trips[program.LatencyKey{Variant: v, Payload: payload}] {
					all = append(all, c.of(trips))
				}
				return all
			}
			rows = append(rows, row{
				What: fmt.Sprintf(
					"pings of %d bytes through %d packet programs at %.0f %% load: %s",
					payload,
					program.LatencySlices,
					100*program.LatencyLoad,
					c.what,
				),
				Unit: "us", Values: values(program.Program), Most: c.most,
				Against: "as many of " + program.UDP.Title(), Other: values(program.UDP),
			})
		}
	}
	return rows
}

func latencySection(t *program.Latency) *chart.Section {
	s := &chart.Section{
		Title: "Pings through loaded routers of eight slices (figure 10 of SPP)",
		Intro: fmt.Sprintf(
			"%d rounds of up to %d pings through %d routers, each of which has an eighth of a load of "+
				"%.0f %% of what all can do. Pings and load have the same length.",
			t.Rounds,
			program.LatencyPings,
			program.LatencySlices,
			100*program.LatencyLoad,
		),
		Notes: append([]string{
			"Routers, wires and cores are those of figure 9; each slice has its own wires. Pings and " +
				"load share wires and queues. A program beyond the last wire counts the load, and " +
				"sends pings back.",
			"What the routers can do is measured anew before each series. The process that pings has the " +
				"generator's core, before the generator.",
		}, t.Caveats()...),
	}
	table := chart.Table{Columns: []string{"payload, bytes", "routers", "load, Mframes/s", "of it arrived, %",
		"pings", "lost", "mean, us", "median", "99 %", "longest", "mean + 3 sigma"}}
	c := chart.Chart{File: "program-latency.svg", Title: "Round trips through eight loaded routers", X: "us",
		Y: "% of pings, at most so long", LogX: true, Steps: true}
	for _, payload := range program.LatencyPayloads {
		for _, v := range []program.Variant{program.Program, program.UDP} {
			all := t.Trips[program.LatencyKey{Variant: v, Payload: payload}]
			row, took := latencyCells(all)
			table.Rows = append(table.Rows, append([]string{strconv.Itoa(payload), v.Title()}, row...))
			c.Curves = append(
				c.Curves,
				chart.Distribution(fmt.Sprintf("%s, %d bytes", v.Title(), payload), took),
			)
		}
	}
	s.Tables, s.Charts = []chart.Table{table}, []chart.Chart{c}
	return s
}

// latencyCells sum rounds up.
func latencyCells(all []program.Trips) (cells []string, took []float64) {
	var loads, parts []float64
	lost := 0
	for _, t := range all {
		took = append(took, t.Took...)
		lost += t.Lost
		loads, parts = append(loads, t.Load/1e6), append(parts, 100*t.Arrived/t.Load)
	}
	mean, deviation := chart.Spread(took)
	cells = []string{
		chart.Number(rounds.Middle(loads)),
		chart.Number(rounds.Middle(parts)),
		strconv.Itoa(len(took)),
		strconv.Itoa(lost),
	}
	for _, v := range []float64{mean, chart.Quantile(took, 0.5), chart.Quantile(took, 0.99),
		chart.Quantile(took, 1), mean + 3*deviation} {
		cells = append(cells, chart.Number(v))
	}
	return cells, took
}
