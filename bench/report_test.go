package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/path"
)

func TestReportHasTheFastPathAndItsPlots(t *testing.T) {
	r := &path.Result{Rounds: 1, Wanted: 2, Goals: []path.Goal{{
		What: "one router", Of: path.Key{Measure: path.UDP, Network: path.Fast, Routers: 1}, To: path.Key{Measure: path.UDP, Network: path.Plain, Routers: 1},
		Value: 2, Unit: "x", Least: 1.5, Reached: true,
	}}}
	for _, m := range path.Measures {
		for i, n := range path.Networks {
			for _, routers := range []int{1, 16} {
				r.Series = append(r.Series, path.Series{Key: path.Key{Measure: m, Network: n, Routers: routers}, Samples: []path.Sample{{Value: 1e6 / float64(i+1)}}})
			}
		}
	}
	dir := t.TempDir()
	report := filepath.Join(dir, "benchmarks.md")
	d := &document{}
	d.put(&measurement{Name: "path", Path: r, Origin: origin{Machine: []fact{{"Kernel", "6.18"}}, Command: "bin/bench", Rounds: 5}})
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
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- Kernel: 6.18", "| one router | 1.00 Mframes/s | 0.333 Mframes/s (kernel alone) | 2.00 x | at least 1.5 x | yes |",
		"Time was up after 1 of 2 rounds", "(path-udp.svg)", "--rounds 10",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, p := range pathDrawings {
		if _, err := os.Stat(filepath.Join(dir, p.file)); err != nil {
			t.Error(err)
		}
	}
}
