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

// Goals of figure 9: how many times the rate of the best of those in user space a packet program has at least.
const (
	peakGoal     = 7
	livelockGoal = 100
	redirectGoal = 0.6
)

const throughputWindow = 300 * time.Millisecond

// programThroughput is figure 9 of SPP: a router that is a packet program, beside routers in user space and beside a
// program of XDP that does nothing.
func programThroughput(ctx context.Context, l *lab) ([]row, error) {
	t, err := program.MeasureThroughput(ctx, l.rounds, throughputWindow)
	if t == nil {
		return nil, err
	}
	l.section = throughputSection(t)
	return throughputRows(t), err
}

// throughputRows are the goals, at the smallest frames.
func throughputRows(t *program.Throughput) []row {
	payload := t.Payloads[0]
	own := func(mode program.Mode) program.Key {
		return program.Key{Variant: program.Program, Mode: mode, Payload: payload}
	}
	rate := func(what string, k, other program.Key, ratio float64) row {
		a, b := rounds.Both(t.Samples[k], t.Samples[other])
		return row{What: what, Unit: "Mframes/s", Values: millions(a), Against: other.Variant.Title(),
			Other: millions(b), Ratio: ratio, MoreIsBetter: true,
			Least: 1 / throughputWindow.Seconds() / 1e6} // a frame
	}
	rows := []row{
		rate("packet program, a core for the router, payload 0; to the best in user space", own(program.Peak),
			bestPeer(t, program.Peak, payload), peakGoal),
		rate("packet program, full load on one core, payload 0; to the best in user space", own(program.Flood),
			bestPeer(t, program.Flood, payload), livelockGoal),
		rate("packet program, a core for the router, payload 0", own(program.Peak),
			program.Key{Variant: program.Redirect, Mode: program.Peak, Payload: payload}, redirectGoal),
	}
	for _, v := range []program.Variant{program.Program, program.Redirect} {
		two, one := program.Key{Variant: v, Mode: program.Two}, program.Key{Variant: v, Mode: program.One}
		r := rate(v.Title()+", two cores, generators on the same cores", two, one, 0)
		r.Against = "one core"
		rows = append(rows, r)
	}
	return rows
}

func millions(values []float64) (all []float64) {
	for _, v := range values {
		all = append(all, v/1e6)
	}
	return all
}

// bestPeer is the series of user space with the highest median.
func bestPeer(t *program.Throughput, mode program.Mode, payload int) (best program.Key) {
	most := math.Inf(-1)
	for _, v := range []program.Variant{program.UDP, program.Ring, program.Click} {
		k := program.Key{Variant: v, Mode: mode, Payload: payload}
		if m := rounds.Median(t.Samples[k]); m > most {
			best, most = k, m
		}
	}
	return best
}

func throughputSection(t *program.Throughput) *chart.Section {
	s := &chart.Section{
		Title: "A packet program beside user space (figure 9 of SPP)",
		Intro: fmt.Sprintf(
			"Medians of %d rounds, in turn. A router with one input and one output; datagrams of 256 "+
				"flows, by bytes of data (frames are 42 bytes longer).",
			t.Rounds,
		),
		Notes: throughputNotes,
	}
	var present []program.Variant
	for _, v := range program.Variants {
		if t.Missing[v] == "" {
			present = append(present, v)
		}
	}
	for _, mode := range []program.Mode{program.Peak, program.Flood} {
		s.Tables = append(s.Tables, throughputTable(t, present, mode))
		s.Charts = append(s.Charts, throughputChart(t, present, mode))
	}
	for _, v := range program.Variants {
		if why := t.Missing[v]; why != "" {
			s.Notes = append(s.Notes, fmt.Sprintf("%s was not measured: %s.", v.Title(), why))
		}
	}
	s.Notes = append(s.Notes, t.Caveats()...)
	return s
}

func throughputTable(t *program.Throughput, present []program.Variant, mode program.Mode) chart.Table {
	table := chart.Table{Title: titleOf(mode) + ", Mframes/s, and in brackets what was offered:",
		Columns: []string{"payload, bytes"}}
	for _, v := range present {
		table.Columns = append(table.Columns, v.Title())
	}
	for _, payload := range t.Payloads {
		cells := []string{strconv.Itoa(payload)}
		for _, v := range present {
			k := program.Key{Variant: v, Mode: mode, Payload: payload}
			cells = append(cells, fmt.Sprintf("%s (%s)", chart.Number(rounds.Median(t.Samples[k])/1e6),
				chart.Number(rounds.Middle(t.Offered[k])/1e6)))
		}
		table.Rows = append(table.Rows, cells)
	}
	return table
}

func titleOf(mode program.Mode) string {
	if mode == program.Flood {
		return "Full load, all work on one core"
	}
	return "A core for the router"
}

func throughputChart(t *program.Throughput, present []program.Variant, mode program.Mode) chart.Chart {
	c := chart.Chart{File: "program-throughput-" + string(mode) + ".svg", Title: titleOf(mode),
		X: "bytes of data", Y: "Mframes/s", LogY: true}
	for _, v := range present {
		curve := chart.Curve{Name: v.Title()}
		for _, payload := range t.Payloads {
			k := program.Key{Variant: v, Mode: mode, Payload: payload}
			curve.Add(float64(payload), rounds.Median(t.Samples[k])/1e6)
		}
		c.Curves = append(c.Curves, curve)
	}
	return c
}

var throughputNotes = []string{
	"**Packet program**: examples/programs/ipv4.c with two filters, in XDP at the line card of a veth pair that " +
		"stands for a network card. Its NAPI has a thread on the router's core; the generator " +
		"(BPF_PROG_TEST_RUN with live frames) has the other core.",
	"**Plain XDP redirect**: a program that does nothing but hand frames on, at the same place.",
	"**C, UDP sockets** (bench/peers/udp.c): 64 datagrams by one recvmmsg(2), and by one sendmmsg(2), as a " +
		"router in a slice of PlanetLab with tunnels over UDP; it looks nothing up. **C, AF_PACKET rings** " +
		"(bench/peers/ring.c): TPACKET_V3, a ring for what goes, past the qdisc; no lookup. **Click**: user " +
		"level, FromDevice to ToDevice.",
	"**A core for the router**: a process in user space has it alone, and its frames are received on the " +
		"generator's core, which is more than a packet program gets. What is offered is full load, and then " +
		"1.1 times what arrived, as long as more arrives: the best rate counts.",
	"**All work on one core**: frames enter the stack on the core of the process (RPS), as where the interrupts " +
		"of a card come to that core. The packet program needs no other setting for that: all of its work is " +
		"on one core anyway.",
	"Only frames that arrive while the generator runs count. They are counted behind the last wire, in XDP, and " +
		"where a process sent them, where they enter the stack.",
}
