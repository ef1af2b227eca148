package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/rounds"
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
