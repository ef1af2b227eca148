package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/topology"
)

func TestGeneratedTopologiesAreValid(t *testing.T) {
	for _, topo := range []topo{gridOf(3, "frr"), gridOf(3, "bird"), star(5), line(5)} {
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

func reported(d *document) string { return d.report(nil) }

func TestReportSaysWhatWasMissed(t *testing.T) {
	d := &document{}
	d.put(&measurement{Name: "line-500", Failed: "too slow"})
	d.put(&measurement{Name: "abilene", Rows: []row{{What: "start", Unit: "s", Values: []float64{9}, Most: 8}}})
	text := reported(d)
	for _, want := range []string{"**missed**", "**Not measured:** line-500: too slow", "**Not measured yet:** grid-frr"} {
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
		m := &measurement{Name: name, Origin: origin{Command: command}, Rows: []row{{What: name, Unit: "s", Values: []float64{v}}}}
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
	for _, want := range []string{"| abilene | abilene, s | 2.00 |", "| link | link, s | 3.00 |", "**abilene:**\n\n- Command: `all`", "**link:**\n\n- Command: `bench -only link`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	got := parseBenchmarks("goos: linux\nBenchmarkLookup/IPv4/10/evenly-2 \t 20\t 0 ns/op\t 12.5 ns/lookup\nBenchmarkLookup/IPv4/10/evenly-2 20 0 ns/op 13 ns/lookup\nPASS\n")
	if v := got["BenchmarkLookup/IPv4/10/evenly"]["ns/lookup"]; !slices.Equal(v, []float64{12.5, 13}) {
		t.Errorf("read %v of %v", v, got)
	}
}
