package main

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
)

// Goals of slices beside a flood, in percent.
const (
	slicesLoss      = 1 // where the flood has the others' core
	slicesRateError = 5
)

// programSlices is many slices with packet programs, one of which floods.
func programSlices(ctx context.Context, l *lab) ([]row, error) {
	s, err := program.MeasureSlices(ctx, l.rounds)
	if s == nil {
		return nil, err
	}
	l.section = slicesSection(s)
	return slicesRows(s), err
}

func slicesRows(s *program.Slices) (rows []row) {
	for _, sharing := range program.Sharings {
		what := fmt.Sprintf("%d slices with packet programs, one floods, which has %s", program.SlicesCount,
			sharing)
		loss := row{What: what + ": frames of the others that were lost", Unit: "%"}
		if loss.Most = slicesLoss; sharing == program.Apart {
			loss.Most, loss.None = 0, true
		}
		rate := row{What: what + ": rate of a slice, furthest from what it reserved", Unit: "%",
			Most: slicesRateError}
		for _, r := range s.Runs[sharing] {
			loss.Values = append(loss.Values, 100*r.Loss())
			rate.Values = append(rate.Values, 100*r.RateError())
		}
		rows = append(rows, loss, rate)
	}
	return rows
}

func slicesSection(s *program.Slices) *chart.Section {
	section := &chart.Section{
		Title: fmt.Sprintf("%d slices with packet programs, one of which floods", program.SlicesCount),
		Intro: fmt.Sprintf("%d rounds. %d slices send %.0f frames a second each; one sends as much "+
			"as a card can, or %d times what the core of all could do of its frames.", s.Rounds,
			program.SlicesCount-1,
			program.SlicesRate, program.SlicesFlood),
		Notes: append([]string{
			"Each slice has a node with a packet program in XDP, between wires of its own: a " +
				"card to the source, and one to the sink. All frames have 64 bytes, and come from " +
				"one generator, which gives the others their turns by the clock, 8 frames at once, " +
				"and the rest of its time to the flood.",
			"**A core of its own**: the NAPI of the flood's card has a thread on one core, those " +
				"of the others on the generator's. **The same core**: all have theirs on one.",
			fmt.Sprintf("The others' program is examples/programs/ipv4.c, and each has reserved "+
				"%.4f cores (`fastpath`). The flood's takes two microseconds for each frame, "+
				"and has the pool: what nobody reserved. A core that did nothing else would "+
				"do %.3f Mframes/s of it.", s.Reserved,
				s.Capacity/1e6),
			"What is missing between *were to send* and *sent* is the generator's: other work " +
				"had its core.",
			"All frames count that were made in a window, until no further one came. So what did " +
				"not fit into a card is lost, too; *metered* is how many of the lost ones found no " +
				"processor time of their slice.",
		}, s.Caveats()...),
	}
	t := chart.Table{Columns: []string{"the flood has", "flood offered, Mframes/s", "times what a core does",
		"forwarded", "others were to send",
		"sent", "lost", "metered", "their rates, % of what was reserved: lowest", "highest"}}
	c := chart.Chart{File: "program-slices.svg", Title: "Rates beside a flood", X: "% of the reserved rate",
		Y: "% of slices, at most so much", Steps: true}
	for _, sharing := range program.Sharings {
		var offered, forwarded, rates []float64
		due, sent, lost, metered := 0, 0, 0, uint64(0)
		for _, r := range s.Runs[sharing] {
			offered, forwarded = append(offered, r.Offered/1e6), append(forwarded, r.Forwarded/1e6)
			due, sent, lost, metered = due+r.Due, sent+r.Sent, lost+r.Lost, metered+r.Metered
			for _, rate := range r.Rates {
				rates = append(rates, 100*rate/program.SlicesRate)
			}
		}
		t.Rows = append(t.Rows, []string{string(sharing), chart.Number(rounds.Middle(offered)),
			chart.Number(rounds.Middle(offered) * 1e6 / s.Capacity),
			chart.Number(rounds.Middle(forwarded)), fmt.Sprint(due), fmt.Sprint(sent),
			fmt.Sprint(lost), fmt.Sprint(metered),
			chart.Number(chart.Quantile(rates, 0)), chart.Number(chart.Quantile(rates, 1))})
		c.Curves = append(c.Curves, chart.Distribution(string(sharing), rates))
	}
	section.Tables, section.Charts = []chart.Table{t}, []chart.Chart{c}
	return section
}
