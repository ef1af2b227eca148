package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
)

// flowOthers is a flow beside others that have reservations, too, and beside traffic that comes by another card.
func flowOthers(ctx context.Context, l *lab) ([]row, error) {
	b, err := program.MeasureBeside(ctx, l.rounds)
	if b == nil {
		return nil, err
	}
	l.section = othersSection(b)
	return othersRows(b), err
}

// othersRows are the goals: of the flow beside all that send more than they have reserved, and of what these send
// within it.
func othersRows(b *program.Beside) (rows []row) {
	for _, k := range program.OthersKeys() {
		if k.Thread != traffic.FIFO || k.Others.Times != program.OthersTimes {
			continue
		}
		alone := k
		alone.Others = program.Others{}
		what := fmt.Sprintf("a flow through %s beside %s: ", k.Router.Title(), othersTitle(k.Others))
		lost := row{What: what + "of theirs within reservations, lost", Unit: "%", Most: reservedLoss}
		lost.Values = finiteOf(b.Runs[k], reservedLost)
		for _, figure := range flowFigures {
			r := row{What: what + figure.name, Unit: figure.unit, Against: "beside none"}
			switch figure.name {
			case "lost":
				r.Most = reservedLoss
			case "99 %":
				r.Ratio = reservedDelay
			default:
				continue
			}
			r.Values, r.Other = finiteOf(b.Runs[k], figure.of), finiteOf(b.Runs[alone], figure.of)
			rows = append(rows, r)
		}
		if !k.Others.Program { // programs wait for what is reserved
			rows = append(rows, lost)
		}
	}
	return rows
}

// reservedLost is the part of what others sent within their reservations that was lost, in percent.
func reservedLost(r program.FlowRun) float64 { return 100 * (1 - r.ReservedArrived/r.Reserved) }

func othersTitle(o program.Others) string {
	var title string
	switch {
	case o.Flows > 0:
		title = fmt.Sprintf("%d with reservations, which they keep", o.Flows)
		if o.Times > 1 {
			title = fmt.Sprintf("%d with reservations, that send %d times as much", o.Flows, o.Times)
		}
	case o.Cross > 0:
		title = "best effort"
	default:
		return "none"
	}
	switch {
	case o.Program:
		title += ", by another card and through a packet program that takes long"
	case o.Apart:
		title += ", by another card"
	}
	return title
}

func othersSection(b *program.Beside) *chart.Section {
	s := &chart.Section{
		Title: "A flow beside others with reservations, and beside another card (figure 5 of QuaSAR)",
		Intro: fmt.Sprintf("%d rounds. The flow is that of the section before, an LSP with a reservation; "+
			"wires, cards and cores are as there. All cards are polled on one core.", b.Rounds),
		Notes: append([]string{
			fmt.Sprintf("**With reservations**: LSPs of the same routers, which have reserved %.0f %% "+
				"of what the core can do, all together. Of what they send, one frame in so many "+
				"has traffic class 5, as a router gives it to what is within the reservation, and "+
				"the others have 0.",
				100*program.OthersPart),
			"**By another card**: the others come by a card of their own, with routers of its own " +
				"behind it.",
			"**Through a packet program**: bench/program/code/flood.c, which takes about two " +
				"microseconds for a frame. Its frames wait for all that have reservations, whatever " +
				"class they have.",
			"*Within, lost* is the part of the others' frames with class 5 that did not come.",
			"*Threads* are those that poll the cards. Without early demultiplexing they are ordinary ones.",
			"Figures are medians over the rounds.",
		}, b.Caveats()...),
	}
	for _, r := range program.OthersRouters {
		s.Notes = append(s.Notes, fmt.Sprintf("A core does %.3f Mframes/s that have reservations through %d "+
			"routers.", b.Capacity[r.Routers]/1e6, r.Routers))
	}
	for _, policy := range []traffic.Policy{traffic.Ordinary, traffic.FIFO, traffic.Deadline} {
		if why := b.Refused[policy]; why != "" {
			s.Notes = append(s.Notes, fmt.Sprintf("Threads by %s were not measured: %s for a thread "+
				"that is kept on one core.", policy, why))
		}
	}
	t := chart.Table{Columns: []string{"routers", "early demultiplexing", "threads", "others",
		"they send, Mframes/s", "of it forwarded", "within, lost, %", "flow: frames/s"}}
	for _, figure := range flowFigures {
		t.Columns = append(t.Columns, figure.name+", "+figure.unit)
	}
	for _, k := range program.OthersKeys() {
		if b.Refused[k.Thread] == "" {
			t.Rows = append(t.Rows, othersCells(k, b.Runs[k]))
		}
	}
	s.Tables = []chart.Table{t}
	return s
}

func othersCells(k program.OthersKey, runs []program.FlowRun) []string {
	early := "no"
	if k.Router.Early {
		early = "yes"
	}
	cells := []string{strconv.Itoa(k.Router.Routers), early, string(k.Thread), othersTitle(k.Others)}
	figures := []func(program.FlowRun) float64{
		func(r program.FlowRun) float64 { return r.Cross / 1e6 },
		func(r program.FlowRun) float64 { return r.CrossArrived / 1e6 },
		reservedLost, // not a number where they have none
		func(r program.FlowRun) float64 { return r.Rate },
	}
	for _, figure := range flowFigures {
		figures = append(figures, figure.of)
	}
	for _, of := range figures {
		cells = append(cells, chart.Number(rounds.Middle(finiteOf(runs, of))))
	}
	return cells
}
