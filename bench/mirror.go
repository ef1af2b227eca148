package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/bench/follow"
)

// mirrors measures how the fast path's copies of routing tables follow the kernels', and what they cost. The
// benchmarks of the packages do that; `make bench` builds them as programs.
func mirrors(ctx context.Context, l *lab) ([]row, error) {
	rounds := strconv.Itoa(l.rounds)
	start, err := l.benchmark(ctx, "mirror", "^BenchmarkMillion$", "1x", rounds)
	if err != nil {
		return nil, err
	}
	change, err := l.benchmark(ctx, "mirror", "^BenchmarkChange$", "2000x", rounds)
	if err != nil {
		return nil, err
	}
	rows := []row{
		{What: "mirror of 1,000,000 routes: cold start", Unit: "s",
			Values: start["BenchmarkMillion"]["s/start"], Most: 3},
		{What: "mirror: a change is visible, median of 2000", Unit: "us",
			Values: change["BenchmarkChange"]["us-p50-from-change"], Most: 50},
		{What: "mirror: a change is visible, 99th percentile of 2000", Unit: "us",
			Values: change["BenchmarkChange"]["us-p99-from-change"], Most: 1000},
	}
	lookup, err := l.benchmark(ctx, "fib", "^BenchmarkLookup$/^IPv4$/^(10|1000|1000000)$/^evenly$", "20x", rounds)
	if err != nil {
		return nil, err
	}
	for _, n := range []int{10, 1000, 1_000_000} {
		rows = append(rows, row{
			What: fmt.Sprintf("mirror: a lookup among %d IPv4 routes", n), Unit: "ns", Most: 60,
			Values: lookup[fmt.Sprintf("BenchmarkLookup/IPv4/%d/evenly", n)]["ns/lookup"],
		})
	}
	for _, r := range rows {
		if len(r.Values) != l.rounds {
			return nil, fmt.Errorf("%s: %d of %d rounds gave a figure", r.What, len(r.Values), l.rounds)
		}
	}
	maps, heap, err := follow.Memory(ctx, 500, 1000)
	if err != nil {
		return rows, err
	}
	const mib = 1 << 20
	return append(rows, row{
		What: fmt.Sprintf("mirrors of 500 routers with 1000 consecutive /24 routes each: memory (%.0f in maps)",
			float64(maps)/mib), Unit: "MiB",
		Values: []float64{float64(maps+heap) / mib}, Most: 1024,
	}), nil
}

// benchmark runs benchmarks of a package, and gives what they say: values of all rounds, by benchmark and by unit.
func (l *lab) benchmark(ctx context.Context, pkg, which, time, rounds string) (map[string]map[string][]float64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(l.tests, pkg+".test"), "-test.run", "^$", "-test.bench", which,
		"-test.benchtime", time, "-test.count", rounds)
	cmd.Dir = l.dir
	out, err := run(cmd)
	if err != nil {
		return nil, err
	}
	return parseBenchmarks(string(out)), nil
}

// parseBenchmarks reads lines such as "BenchmarkX/case-2  20  123 ns/op  4 widgets".
func parseBenchmarks(text string) map[string]map[string][]float64 {
	all := map[string]map[string][]float64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := words[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of processors
		}
		if all[name] == nil {
			all[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(words); i += 2 {
			if v, err := strconv.ParseFloat(words[i], 64); err == nil {
				all[name][words[i+1]] = append(all[name][words[i+1]], v)
			}
		}
	}
	return all
}

// convergence measures how long frames go astray when a link fails. These rounds are short, so there are more of them.
func convergence(ctx context.Context, l *lab) ([]row, error) {
	astray, err := follow.Convergence(ctx, 4*l.rounds)
	milliseconds := func(all []time.Duration) (values []float64) {
		for _, d := range all {
			values = append(values, float64(d.Microseconds())/1000)
		}
		return values
	}
	return []row{{
		What: "a link fails: frames go astray", Unit: "ms", Values: milliseconds(astray.Fast),
		Against: "kernels alone", Other: milliseconds(astray.Kernel), MostMore: 5,
	}}, err
}
