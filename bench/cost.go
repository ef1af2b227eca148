package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/traffic"
)

// flowCost is figure 4 of QuaSAR: latency, jitter and throughput at rest, and what the steps of a frame's way take.
func flowCost(ctx context.Context, l *lab) ([]row, error) {
	c, err := program.MeasureCost(ctx, l.rounds)
	if c == nil {
		return nil, err
	}
	l.section = costSection(c)
	rows := costRows(c)
	if err != nil {
		return rows, err
	}
	steps, err := l.frameSteps(ctx)
	return append(rows, steps...), err
}

// Goals at rest: how many times better than without early demultiplexing.
const (
	reservedAtRest = 0.909 // at most 10 % above the latency
	bestAtRest     = 0.952 // at most 5 % slower
	bestStream     = 0.95
)

func meanLatency(r program.FlowRun) float64 { return r.Mean }

func costRows(c *program.Cost) (rows []row) {
	for _, r := range program.CostRouters {
		if !r.Early {
			continue
		}
		without := r
		without.Early = false
		goal := bestAtRest
		if r.LSP {
			goal = reservedAtRest
		}
		rows = append(rows, row{
			What: "at rest: mean latency through " + r.Title(), Unit: "us", Ratio: goal,
			Values:  finiteOf(c.Runs[r], meanLatency),
			Against: "without early demultiplexing", Other: finiteOf(c.Runs[without], meanLatency),
		})
	}
	early := program.FlowRouter{By: program.ByLineCard, Routers: 1, Early: true}
	for _, protocol := range streamProtocols {
		rows = append(rows, row{
			What: fmt.Sprintf("a stream of %s through %s", protocol.name, early.Title()), Unit: "Gbit/s",
			Values:  gigabits(c.Streams[early], protocol.of),
			Against: "without early demultiplexing", Other: gigabits(c.Streams[program.Walk], protocol.of),
			MoreIsBetter: true, Ratio: bestStream,
		})
	}
	return append(rows, row{What: "queue: what HTB that is never full takes of a core, for a frame", Unit: "ns",
		Values: c.Queue})
}

var streamProtocols = []struct {
	name string
	of   func(program.Stream) float64
}{
	{"TCP", func(s program.Stream) float64 { return s.TCP }},
	{"UDP", func(s program.Stream) float64 { return s.UDP }},
}

func gigabits(all []program.Stream, of func(program.Stream) float64) (values []float64) {
	for _, s := range all {
		values = append(values, of(s)/1e9)
	}
	return values
}

// frameSteps has the benchmarks of what a frame's way is made of: round by round, so that all meet the same machine.
func (l *lab) frameSteps(ctx context.Context) ([]row, error) {
	const few, many = 1, 16 // routers
	rows := make([]row, len(frameStepsOf))
	for i, s := range frameStepsOf {
		rows[i] = row{What: s.what, Unit: "ns"}
	}
	for range l.rounds {
		is, err := l.benchmark(ctx, "datapath", "^BenchmarkEarly$|^BenchmarkSwap$/^routers=(1|16)$|"+
			"^BenchmarkLSP$/^reserved=(true|false)$/^rules=0$|"+
			"^BenchmarkWalk$/^port_ingress$/^IPv6=false$/^routers=(1|16)$", "1000000x", "1")
		if err != nil {
			return nil, err
		}
		for i, s := range frameStepsOf {
			more, less := is[s.more]["ns/op"], is[s.less]["ns/op"]
			if len(more) != 1 || len(less) != 1 {
				return nil, fmt.Errorf("%s and %s gave %d and %d figures, not one", s.more, s.less,
					len(more), len(less))
			}
			each := more[0] - less[0]
			if s.slope {
				each /= many - few
			}
			rows[i].Values = append(rows[i].Values, each)
		}
	}
	return rows, nil
}

// frameStepsOf are steps, each by a benchmark with it less one without; slope: of 16 routers less one.
var frameStepsOf = []struct {
	what, more, less string
	slope            bool
}{
	{"classify: a frame with a reservation is told apart, and one in 16 measured",
		"BenchmarkEarly/reserved", "BenchmarkEarly/alike", false},
	{"police: a frame is measured where its LSP begins",
		"BenchmarkLSP/reserved=true/rules=0", "BenchmarkLSP/reserved=false/rules=0", false},
	{"walk: a router swaps a label", "BenchmarkSwap/routers=16", "BenchmarkSwap/routers=1", true},
	{"walk: a hop of IPv4", "BenchmarkWalk/port_ingress/IPv6=false/routers=16",
		"BenchmarkWalk/port_ingress/IPv6=false/routers=1", true},
	{"drop: a frame of best effort for which there is no time",
		"BenchmarkEarly/dropped", "BenchmarkEarly/nothing", false},
}

var costNotes = []string{
	"Frames, sink and cores are those of the section on cross traffic: all that routers do is done on one " +
		"core, and the generator has the other one.",
	"**User space**: bench/peers/router.c, a process for each router, which takes frames from a socket of " +
		"AF_PACKET and looks nothing up. **An LSP**: each router swaps its label; without early " +
		"demultiplexing its frames are forwarded as all others.",
	"With early demultiplexing the card's thread is a real-time one (FIFO), and best effort waits for a second " +
		"thread of the same core.",
	fmt.Sprintf("**Streams**: iperf3, one stream of a second, as many in turn; a core each for sender and "+
		"receiver, and what is sent is forwarded on the sender's core. Datagrams have %d bytes and are "+
		"sent as fast as they are taken; what arrives counts. Frames on wires are complete and no longer "+
		"than 1,514 bytes; the kernel's routers make super-frames of them (GRO), those in user space "+
		"cannot.", traffic.UDPLength),
	"**Steps of a frame's way** are benchmarks of datapath, the programs' own time: *walk* is what a router " +
		"more takes, the others are a frame with the step less one without. *Queue* is measured by " +
		"frames: what a core takes for one that leaves through HTB, less one that leaves past it.",
}

func costSection(c *program.Cost) *chart.Section {
	s := &chart.Section{
		Title: "What reservations cost at rest (figure 4 of QuaSAR)",
		Intro: fmt.Sprintf("%d runs of each, in turn, of %.0f frames of 70 bytes, %.0f a second; no cross "+
			"traffic. Means of the runs, and in brackets the least and the most of them.", c.Rounds,
			program.CostRate*program.CostWindow.Seconds(), program.CostRate),
		Notes: append(slices.Clone(costNotes), c.Caveats()...),
	}
	latency := chart.Table{Columns: []string{"router", "mean latency, us", "99 %, us", "jitter, us", "lost, %"}}
	figures := []func(program.FlowRun) float64{
		meanLatency,
		func(r program.FlowRun) float64 { return r.P99 },
		func(r program.FlowRun) float64 { return r.Jitter },
		func(r program.FlowRun) float64 { return 100 * r.Loss() },
	}
	stream := chart.Table{Columns: []string{"router", "TCP, Gbit/s", "UDP, Gbit/s"}}
	for _, r := range program.CostRouters {
		cells := []string{r.Title()}
		for _, of := range figures {
			cells = append(cells, spread(program.MeanOfRuns(c.Runs[r], of)))
		}
		latency.Rows = append(latency.Rows, cells)
		if len(c.Streams[r]) == 0 {
			continue
		}
		cells = []string{r.Title()}
		for _, protocol := range streamProtocols {
			values := gigabits(c.Streams[r], protocol.of)
			mean, _ := chart.Spread(values)
			cells = append(cells, spread(mean, chart.Quantile(values, 0), chart.Quantile(values, 1)))
		}
		stream.Rows = append(stream.Rows, cells)
	}
	s.Tables = []chart.Table{latency}
	if len(stream.Rows) > 0 {
		s.Tables = append(s.Tables, stream)
	}
	return s
}

// spread is a mean with the least and the most.
func spread(mean, least, most float64) string {
	return fmt.Sprintf("%s (%s to %s)", chart.Number(mean), chart.Number(least), chart.Number(most))
}
