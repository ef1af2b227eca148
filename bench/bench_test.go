package main

import (
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
		{"within the limit", row{values: []float64{1, 9, 2}, most: 3}, true},
		{"over the limit", row{values: []float64{1, 9, 8}, most: 3}, false},
		{"less is better", row{values: []float64{1}, against: "x", other: []float64{2}, ratio: 2}, true},
		{"not twice as good", row{values: []float64{1}, against: "x", other: []float64{1.9}, ratio: 2}, false},
		{"more is better", row{values: []float64{0.96}, against: "x", other: []float64{1}, ratio: 0.95, moreIsBetter: true}, true},
		{"nothing promised", row{values: []float64{1}}, true},
	} {
		if got := c.row.holds(); got != c.holds {
			t.Errorf("%s: holds is %v", c.name, got)
		}
	}
}

func TestReportSaysWhatWasNotKept(t *testing.T) {
	r := results{rounds: 1, partial: true, failed: []string{"line-500: too slow"}}
	r.rows = []row{{what: "start", unit: "s", values: []float64{9}, most: 8}}
	text := r.report("- Machine: test\n")
	if !strings.Contains(text, "**no**") || !strings.Contains(text, "Only some") || !strings.Contains(text, "line-500: too slow") {
		t.Errorf("the report hides what was not kept:\n%s", text)
	}
}
