package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/program"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/bench/tunnel"
)

func TestReportHasTheFastPathAndItsPlots(t *testing.T) {
	r := &path.Result{Counts: rounds.Counts{Rounds: 1, Wanted: 2}, Goals: []path.Goal{{
		What: "one router", Of: path.Key{Measure: path.UDP, Network: path.Fast, Routers: 1},
		To:    path.Key{Measure: path.UDP, Network: path.Plain, Routers: 1},
		Value: 2, Unit: "x", Least: 1.5, Reached: true,
	}}}
	for _, m := range path.Measures {
		for i, n := range path.Networks {
			for _, routers := range []int{1, 16} {
				r.Series = append(r.Series,
					path.Series{Key: path.Key{Measure: m, Network: n, Routers: routers},
						Samples: []path.Sample{{Value: 1e6 / float64(i+1)}}})
			}
		}
	}
	dir, text := writtenTwice(t,
		&measurement{Name: "path", Path: r, Origin: origin{Machine: []fact{{"Kernel", "6.18"}},
			Command: "bin/bench", Rounds: 5}})
	for _, want := range []string{
		"- Kernel: 6.18",
		"| one router | 1.00 Mframes/s | 0.333 Mframes/s (kernel alone) | 2.00 x | at least 1.5 x | yes |",
		"Time was up after 1 of 2 rounds", "(path-udp.svg)", "--rounds 10",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, p := range pathDrawings {
		if _, err := os.Stat(filepath.Join(dir, p.file)); err != nil {
			t.Error(err)
		}
	}
}

func TestReportHasTunnelsAndTheirPlots(t *testing.T) {
	r := &tunnel.Result{
		Counts: rounds.Counts{Rounds: 1, Wanted: 2}, Sizes: []int{64, 1400}, Slices: []int{8},
		Goals: []tunnel.Goal{{
			What: "EGRE", Found: "1 Mframes/s", Against: "2 Mframes/s (native)",
			Value: 0.5, Unit: "x", Bound: 1.5,
		}},
	}
	for i, w := range tunnel.Variants {
		for _, size := range r.Sizes {
			r.Series = append(r.Series,
				tunnel.Series{Key: tunnel.RateKey(w, size),
					Samples: []rounds.Sample{{Value: 1e6 / float64(i+1)}}})
		}
	}
	dir, text := writtenTwice(t,
		&measurement{Name: "tunnel", Tunnels: r, Origin: origin{Command: "bin/bench", Rounds: 5}})
	for _, want := range []string{
		"| EGRE | 1 Mframes/s | 2 Mframes/s (native) | 0.500 x | at least 1.5 x | **missed** |",
		"| native forwarding | 1.00 | 1.00 |",
		"| Pergola, EGRE | 0.125 (0.125) |", "Time was up after 1 of 2 rounds", "-rounds 5",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, file := range []string{"tunnel-variants.svg", "tunnel-frames.svg", "tunnel-bits.svg"} {
		if !strings.Contains(text, "("+file+")") {
			t.Errorf("the report does not show %s", file)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
}

func TestReportHasSectionsOfSlicesAndTheirPlots(t *testing.T) {
	key := [2]string{answerKinds[0], answerFloods[1].name}
	none, most := i3Key{i3Kinds()[0].name, 0}, i3Key{i3Kinds()[0].name, i3Loads[len(i3Loads)-1]}
	took := []float64{1, 2, 3}
	answered := &answerTook{took: map[[2]string][]float64{key: took}, worst: map[[2]string][]float64{key: took},
		leases: map[string][]float64{answerFloods[1].name: {9}}}
	cycled := &cycleTook{cycles: map[string][]float64{"10 ms": took}, pings: map[string][]float64{"10 ms": took},
		pinged: map[string][]float64{"10 ms": {30}}}
	pinged := &i3Took{took: map[i3Key][]float64{none: took, most: took},
		mean: map[i3Key][]float64{none: {20}, most: {45}}}
	flooded := &program.Slices{Capacity: 1e6, Runs: map[program.Sharing][]program.SlicesRun{
		program.Apart:    {{Offered: 6e6, Sent: 100, Lost: 1, Rates: []float64{490, 500}}},
		program.Together: {{Offered: 6e6, Sent: 200, Lost: 1, Rates: []float64{490, 500}}},
	}}
	flows := &program.Flows{Runs: map[program.FlowKey][]program.FlowRun{
		{Router: program.Walk}: {{Sent: 100, P99: 20}},
		{Router: program.Walk, Cross: program.CrossRates[len(program.CrossRates)-1]}: {
			{Sent: 100, Lost: 50, P99: 80, Cross: 4e6}},
		{Router: program.Kernel}: {{Sent: 100, Lost: 100, Mean: math.NaN(), P99: math.NaN(),
			P999: math.NaN(), Jitter: math.NaN()}},
	}}
	process := program.FlowRouter{By: program.ByProcess, Routers: 1}
	reserved := program.FlowRouter{By: program.ByLineCard, Routers: 1, LSP: true}
	cost := &program.Cost{Runs: map[program.FlowRouter][]program.FlowRun{
		process: {{Sent: 10, Mean: 20}, {Sent: 10, Mean: 40}}, reserved: {{Sent: 10, Mean: 10}},
		program.Early: {{Sent: 10, Mean: 12}},
	}, Streams: map[program.FlowRouter][]program.Stream{process: {{TCP: 8e9, UDP: 4e9}}}}
	beside := &program.Beside{Capacity: map[int]float64{program.FlowHops: 5e5},
		Refused: map[traffic.Policy]string{traffic.Deadline: "the kernel refuses it"},
		Runs: map[program.OthersKey][]program.FlowRun{
			{Router: program.LongEarly, Thread: traffic.FIFO,
				Others: program.Others{Flows: 100, Times: program.OthersTimes}}: {
				{Sent: 100, Cross: 1e6, Reserved: 1e5, ReservedArrived: 95e3}},
		}}
	for _, c := range []struct {
		m    measurement
		file string // empty: it has no chart
		want []string
	}{
		{measurement{Name: "flow-cost", Rows: costRows(cost), Section: costSection(cost)}, "",
			[]string{"user space, one router | 30.0 (20.0 to 40.0)", "at least 0.909 x | **missed**",
				"| 8.00 (8.00 to 8.00) | 4.00 (4.00 to 4.00) |"}},
		{measurement{Name: "flow-others", Rows: othersRows(beside), Section: othersSection(beside)}, "",
			[]string{"reservations, lost, % | 5.00 | 5.00 to 5.00 |  |  | at most 1 | **missed**",
				"DEADLINE were not measured: the kernel refuses it", "A core does 0.500 Mframes/s"}},
		{measurement{Name: "flood-answers", Rows: answered.rows(), Section: answered.section()},
			"flood-answers.svg",
			[]string{"at most 500 | yes", "at most 8 | **missed**"}},
		{measurement{Name: "cycle-times", Rows: cycled.rows(), Section: cycled.section()}, "cycle-times.svg",
			[]string{"at most 200 | yes"}},
		{measurement{Name: "i3-latency", Rows: pinged.rows(), Section: pinged.section()}, "i3-latency.svg",
			[]string{"at most 50, at most 20 more | **missed**"}},
		{measurement{Name: "program-slices", Rows: slicesRows(flooded), Section: slicesSection(flooded)},
			"program-slices.svg", []string{"none | **missed**", "0.50 to 0.50 |  |  | at most 1 | yes",
				"2.00 to 2.00 |  |  | at most 5 | yes"}},
		{measurement{Name: "flow-partition", Rows: flowRows(flows), Section: flowSection(flows)},
			"flow-latency.svg",
			[]string{"99 %, us | 80.0 | 80.0 to 80.0 | beside none: 20.0 (of 1) | 0.25"}},
	} {
		c.m.Rows = slices.DeleteFunc(c.m.Rows, func(r row) bool { return !r.any() })
		dir, text := writtenTwice(t, &c.m)
		if c.file != "" {
			c.want = append(c.want, "("+c.file+")")
			if _, err := os.Stat(filepath.Join(dir, c.file)); err != nil {
				t.Error(err)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.m.Name, want, text)
			}
		}
	}
}

// writtenTwice writes a report, reads it back and writes it again, as a run with -only does.
func writtenTwice(t *testing.T, m *measurement) (dir, text string) {
	t.Helper()
	dir = t.TempDir()
	report := filepath.Join(dir, "benchmarks.md")
	d := &document{}
	d.put(m)
	if err := (options{out: report}).write(d); err != nil {
		t.Fatal(err)
	}
	d, err := readDocument(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := (options{out: report}).write(d); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(b)
}
