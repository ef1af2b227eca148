package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/topology"
)

func TestGeneratedTopologiesAreValid(t *testing.T) {
	for _, topo := range []topo{
		gridOf(3, "frr"), gridOf(3, "bird"), star(5), line(5), {name: "answers", yaml: answersTopology},
		cyclesOf(1, cycleSettings[0]), cyclesOf(2, cycleSetting{}), i3LatencyTopology("/bin/i3d"),
	} {
		if _, diagnostics := topology.Parse(topo.name+".yaml", []byte(topo.yaml)); len(diagnostics) > 0 {
			t.Errorf("%s: %v", topo.name, diagnostics)
		}
	}
}

func TestRowJudgesByMedianAndRatio(t *testing.T) {
	for _, c := range []struct {
		name  string
		row   row
		holds bool
	}{
		{"within the limit", row{Values: []float64{1, 9, 2}, Most: 3}, true},
		{"over the limit", row{Values: []float64{1, 9, 8}, Most: 3}, false},
		{"less is better", row{Values: []float64{1}, Against: "x", Other: []float64{2}, Ratio: 2}, true},
		{"not twice as good", row{Values: []float64{1}, Against: "x", Other: []float64{1.9}, Ratio: 2}, false},
		{"as good in most rounds, for all that the machine changed", row{Values: []float64{1, 5, 6}, Against: "x", Other: []float64{2, 10, 3}, Ratio: 2}, true},
		{"more is better", row{Values: []float64{0.96}, Against: "x", Other: []float64{1}, Ratio: 0.95, MoreIsBetter: true}, true},
		{"little more", row{Values: []float64{1, 6}, Against: "x", Other: []float64{0, 3}, MostMore: 5}, true},
		{"much more", row{Values: []float64{8, 9}, Against: "x", Other: []float64{0, 3}, MostMore: 5}, false},
		{"nothing promised", row{Values: []float64{1}}, true},
	} {
		if got := c.row.holds(); got != c.holds {
			t.Errorf("%s: holds is %v", c.name, got)
		}
	}
}

func TestOneThatShowedNothingIsTakenForOneFrame(t *testing.T) {
	for _, c := range []struct {
		name          string
		row           row
		better        string
		goal, reached string
	}{
		{"none in all rounds", row{Values: []float64{2, 3}, Other: []float64{0, 0}, Least: 0.5, Ratio: 4},
			"more than 5.00", "at least 4 x", "yes"},
		{"a bound that is not enough", row{Values: []float64{2, 3}, Other: []float64{0, 0}, Least: 0.5, Ratio: 6},
			"more than 5.00", "at least 6 x", "**missed**"},
		{"none in a round that does not matter", row{Values: []float64{2, 2, 2}, Other: []float64{0, 1, 1},
			Least: 0.5, Ratio: 2}, "2.00", "at least 2 x", "yes"},
		{"not known", row{Values: []float64{2}, Other: []float64{0}, Ratio: 2}, "-", "at least 2 x",
			"**missed**"},
	} {
		c.row.Against, c.row.MoreIsBetter = "another", true
		if got := c.row.cells()[4:]; !slices.Equal(got, []string{c.better, c.goal, c.reached}) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestCyclesAreThoseOfAllBurners(t *testing.T) {
	got, err := cyclesIn([]byte("7000000\n14000000\n"))
	if err != nil || !slices.Equal(got, []float64{8, 16}) {
		t.Errorf("%v ms, %v", got, err)
	}
	if got, err := cyclesIn([]byte("7 burners\n")); err == nil {
		t.Errorf("read %v", got)
	}
}

func TestServersOfI3HaveAddressesOfTheirOwn(t *testing.T) {
	seen := map[netip.Addr]string{}
	for k := range i3Kinds() {
		for s := range i3Servers {
			name, address := i3Server(k, s)
			if other, taken := seen[address]; taken || address.As4()[3] < 3 {
				t.Errorf("%s has %s, as %q", name, address, other)
			}
			seen[address] = name
		}
	}
}

func reported(d *document) string { return d.report(nil) }

func TestReportSaysWhatWasMissed(t *testing.T) {
	d := &document{}
	d.put(&measurement{Name: "line-500", Failed: "too slow"})
	d.put(&measurement{Name: "abilene", Rows: []row{{What: "start", Unit: "s", Values: []float64{9}, Most: 8}}})
	text := reported(d)
	for _, want := range []string{"**missed**", "**Not measured:** line-500: too slow",
		"**Not measured yet:** grid-frr"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report hides what was missed: no %q in\n%s", want, text)
		}
	}
}

func TestOnlyWhatWasMeasuredIsReplaced(t *testing.T) {
	report := filepath.Join(t.TempDir(), "benchmarks.md")
	write := func(name, command string, v float64) {
		d, err := readDocument(report)
		if err != nil {
			t.Fatal(err)
		}
		m := &measurement{Name: name, Origin: origin{Command: command},
			Rows: []row{{What: name, Unit: "s", Values: []float64{v}}}}
		if v == 0 {
			m.Failed, m.Rows = "it broke", nil
		}
		d.put(m)
		if err := d.write(report, nil); err != nil {
			t.Fatal(err)
		}
	}
	write("link", "all", 1)
	write("abilene", "all", 2)
	write("link", "bench -only link", 3)
	write("abilene", "bench -only abilene", 0)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| abilene | abilene, s | 2.00 |", "| link | link, s | 3.00 |",
		"**abilene:**\n\n- Command: `all`", "**link:**\n\n- Command: `bench -only link`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestFailureReplacesOnlyAFailure(t *testing.T) {
	d := &document{}
	for _, m := range []*measurement{
		{Name: "link", Failed: "old"}, {Name: "link", Failed: "new", Rows: []row{{What: "TCP", Unit: "s", Values: []float64{1}}}},
		{Name: "abilene", Rows: []row{{What: "up", Unit: "s", Values: []float64{1}}}}, {Name: "abilene", Failed: "later"},
	} {
		d.put(m)
	}
	text := reported(d)
	if !strings.Contains(text, "**Measured in part:** link: new") ||
		!strings.Contains(text, "| abilene | up, s |") || strings.Contains(text, "later") {
		t.Errorf("the report has what was replaced, or lost what was measured:\n%s", text)
	}
}

func TestCauseNamesNoPaths(t *testing.T) {
	err := errors.New("fork/exec /tmp/x/bin/pergola: run [up /tmp/y1/star.yaml --all] in 10.0.0.0/24 of 3/4\n" +
		"progress\nerror: no /tmp/y1/socket")
	if got, want := cause(t.Context(), err),
		"fork/exec pergola: run [up star.yaml --all] in 10.0.0.0/24 of 3/4: error: no socket"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("not done within 4 minutes"))
	defer cancel()
	if got := cause(ctx, err); got != "not done within 4 minutes" {
		t.Errorf("a scenario whose time was up failed for %q", got)
	}
}

func TestServerThatDiesAtStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	l := &lab{dir: dir, binary: filepath.Join(dir, "pergola")}
	if err := os.WriteFile(l.binary, []byte("#!/bin/sh\n[ $1 = server ] && echo no room\nexit 3\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if err := l.start(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") ||
		!strings.Contains(err.Error(), "no room") {
		t.Errorf("start: %v", err)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	got := parseBenchmarks("goos: linux\nBenchmarkLookup/IPv4/10/evenly-2 \t 20\t 0 ns/op\t 12.5 ns/lookup\n" +
		"BenchmarkLookup/IPv4/10/evenly-2 20 0 ns/op 13 ns/lookup\nPASS\n")
	if v := got["BenchmarkLookup/IPv4/10/evenly"]["ns/lookup"]; !slices.Equal(v, []float64{12.5, 13}) {
		t.Errorf("read %v of %v", v, got)
	}
}
