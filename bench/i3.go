package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
)

// mixGoal is how far sums may lie apart, in percent.
const mixGoal = 10

// i3Mix is figure 11 of SPP: I3 and IPv4 in two slices on one core.
func i3Mix(ctx context.Context, l *lab) ([]row, error) {
	m, err := program.MeasureMix(ctx, l.rounds, 400*time.Millisecond)
	if m == nil {
		return nil, err
	}
	l.section = mixSection(m)
	return mixRows(m), err
}

// mixRows say how far the lowest sum lies below the highest one, by round.
func mixRows(m *program.Mix) (rows []row) {
	for _, payload := range m.Payloads {
		r := row{
			What: fmt.Sprintf(
				"I3 and IPv4 together, payload %d: the lowest rate of all mixes below the highest",
				payload,
			),
			Unit: "%",
			Most: mixGoal,
		}
		lowest, highest := map[int]float64{}, map[int]float64{}
		for _, share := range m.Shares {
			for _, s := range m.Sum[program.MixKey{Payload: payload, Share: share}] {
				if low, ok := lowest[s.Round]; !ok || s.Value < low {
					lowest[s.Round] = s.Value
				}
				highest[s.Round] = math.Max(highest[s.Round], s.Value)
			}
		}
		for round := range m.Wanted {
			if highest[round] > 0 {
				r.Values = append(r.Values, 100*(1-lowest[round]/highest[round]))
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func mixSection(m *program.Mix) *chart.Section {
	s := &chart.Section{
		Title: "I3 and IPv4 on one core (figure 11 of SPP)",
		Intro: fmt.Sprintf(
			"Medians of %d rounds. Two slices, a router and a server of I3, each behind a card of "+
				"its own, share the core of the router; frames of both have one length.",
			m.Wanted,
		),
		Notes: append([]string{
			"**I3**: examples/programs/i3.c, a server that has all identifiers; packets match the " +
				"trigger of one receiver. **IPv4**: examples/programs/ipv4.c. Both run in XDP at " +
				"line cards whose NAPI has a thread on one core.",
			"The rate that is offered is the same for all mixes of one length: 0.9 times the peak of the " +
				"slower of the two. One generator, on the other core, makes the frames of both kinds " +
				"in turn.",
		}, m.Caveats()...),
	}
	c := chart.Chart{File: "i3-mix.svg", Title: "I3 and IPv4 together", X: "IPv4's share, %", Y: "Mframes/s"}
	for _, payload := range m.Payloads {
		t := chart.Table{Title: fmt.Sprintf("I3 payload of %d bytes, Mframes/s:", payload),
			Columns: []string{"IPv4's share", "offered", "I3", "IPv4", "sum"}}
		name := fmt.Sprintf("%d bytes, ", payload)
		i3, ipv4 := chart.Curve{Name: name + "I3"}, chart.Curve{Name: name + "IPv4"}
		sum := chart.Curve{Name: name + "sum"}
		for _, share := range m.Shares {
			k := program.MixKey{Payload: payload, Share: share}
			values := []float64{
				rounds.Middle(m.Offered[k]),
				rounds.Middle(m.I3[k]),
				rounds.Middle(m.IPv4[k]),
				rounds.Median(m.Sum[k]),
			}
			cells := []string{strconv.Itoa(int(100*share)) + " %"}
			for _, v := range values {
				cells = append(cells, chart.Number(v/1e6))
			}
			t.Rows = append(t.Rows, cells)
			i3.Add(100*share, values[1]/1e6)
			ipv4.Add(100*share, values[2]/1e6)
			sum.Add(100*share, values[3]/1e6)
		}
		s.Tables = append(s.Tables, t)
		c.Curves = append(c.Curves, i3, ipv4, sum)
	}
	s.Charts = []chart.Chart{c}
	return s
}
