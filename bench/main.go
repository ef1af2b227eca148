// Command bench measures Pergola on this machine and writes docs/benchmarks.md: what is promised, what was measured,
// on what machine, by what command. It drives the real binary, as a user does, with a server and directories of its
// own.
//
//	bench -pergola bin/pergola -tests bin -out docs/benchmarks.md [-only REGEXP] [-rounds N]
//	bench -against DIRECTORY [-only REGEXP] [-rounds N] [-out FILE]
//
// With -only, the scenarios that it leaves out stay in the report as they were. With -against, the build in
// DIRECTORY/bin and this one are measured in turn, a table of both is printed, and kept in the report.
//
// Each measurement is repeated and its median is reported; where two things are compared, their rounds alternate (A B
// A B), so that what else happens on the machine hits both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/bench/scratch"
)

func main() {
	var o options
	flag.StringVar(&o.pergola, "pergola", "bin/pergola", "`PATH` of the binary to measure")
	flag.StringVar(&o.tests, "tests", "bin", "`DIRECTORY` of tests of packages, made by go test -c")
	flag.StringVar(&o.out, "out", "",
		"write the report to this `FILE`, what it is made of to FILE.json beside it, and plots; empty: "+
			"say only what is measured")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each measurement is repeated")
	flag.StringVar(&o.against, "against", "",
		"compare with the build in `DIRECTORY`/bin, both in turn; -rounds is how often")
	flag.StringVar(&o.pathFlags, "path", "--routers 0,1,4,8,16 --rounds 2",
		"`FLAGS` of pergola bench path, for -against")
	only := flag.String("only", "",
		"measure only scenarios whose whole name matches this `REGEXP`; a comma separates several: "+
			strings.Join(names(), ", "))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fail(o.run(ctx, *only))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	pergola, tests, out string
	rounds              int
	against, pathFlags  string
}

// scenario is one thing that is measured: one or more rows of the report, or, for the fast path and for tunnels, a
// section.
type scenario struct {
	name string
	most time.Duration // that it may take; all together stay far below the sum
	run  func(context.Context, *lab) ([]row, error)
}

// The last one leaves the kernel cleaning up after Mininet, which would disturb others.
var scenarios []scenario

func init() { // not a value: the report, which they write, lists them
	const short, long = 4 * time.Minute, 8 * time.Minute
	scenarios = []scenario{
		{"abilene", short, abilene},
		{"grid-frr", short, func(ctx context.Context, l *lab) ([]row, error) {
			return grid(ctx, l, "frr", 30)
		}},
		{"grid-bird", short, func(ctx context.Context, l *lab) ([]row, error) {
			return grid(ctx, l, "bird", 12)
		}},
		{"star-100", short, func(ctx context.Context, l *lab) ([]row, error) {
			return hosts(ctx, l, star, 100, limits{})
		}},
		{"star-500", short, func(ctx context.Context, l *lab) ([]row, error) {
			return hosts(ctx, l, star, 500, limits{up: 8, down: 5})
		}},
		{"line-100", short, func(ctx context.Context, l *lab) ([]row, error) {
			return hosts(ctx, l, line, 100, limits{})
		}},
		{"memory", short, memory},
		{"link", short, link},
		{"rootless", short, rootless},
		{"spp-queues", short, sppQueues},
		{"spp-overload", short, sppOverload},
		{"program-throughput", long + short, programThroughput},
		{"program-latency", short, programLatency},
		{"program-slices", short, programSlices},
		{"flow-cost", short + short/2, flowCost},
		{"flow-partition", short, flowPartition},
		{"flow-others", short + short/2, flowOthers},
		{"lsps", long, lsps},
		{"flood-answers", long, floodAnswers},
		{"cycle-times", long, cycleTimes},
		{"i3-mix", long, i3Mix},
		{"i3-latency", long, i3Latency},
		{"mirror", long, mirrors},
		{"convergence", short, convergence},
		{pathScenario, pathLimit + 5*time.Minute, chains},
		{"tunnel", tunnelLimit + 2*time.Minute, tunnels},
		{"cluster-frr", long, clusterGrid},
		{"agents", long, manyAgents},
		{"line-500", long + mininetTimeout, func(ctx context.Context, l *lab) ([]row, error) {
			return hosts(ctx, l, line, 500, limits{up: 30})
		}},
	}
}

// names are those of all scenarios.
func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

func (o options) run(ctx context.Context, only string) error {
	match, err := regexp.Compile("^(" + strings.ReplaceAll(only, ",", "|") + ")$")
	if err != nil {
		return fmt.Errorf("parse -only: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool {
		return only != "" && !match.MatchString(s.name)
	})
	if len(chosen) == 0 {
		return fmt.Errorf("choose scenarios: %q matches none", only)
	}
	if o.rounds < 1 {
		return fmt.Errorf("parse -rounds: %d are none", o.rounds)
	}
	if os.Geteuid() != 0 {
		return errors.New("measure: only root can bring networks up: run it with sudo")
	}
	if o.against != "" {
		return o.compare(ctx, chosen)
	}
	// Read first: what could not be kept would be lost.
	report := &document{}
	if o.out != "" {
		if report, err = readDocument(o.out); err != nil {
			return err
		}
		if _, err := os.Stat(o.out); err == nil && only != "" && len(report.Scenarios) == 0 {
			return fmt.Errorf("keep the rest of %s: there is no %s that says what it holds: "+
				"measure without -only first", o.out, beside(o.out))
		}
	}
	if err := scratch.Collect(ctx, directories, o.clearUp); err != nil {
		return fmt.Errorf("remove what a run that was killed left: %w", err)
	}
	l, err := newLab(o)
	if err != nil {
		return err
	}
	defer l.close()
	machine, err := describeMachine(ctx, l.binary)
	if err != nil {
		return err
	}
	from := origin{Machine: machine, Command: strings.Join(os.Args, " "), Rounds: o.rounds}
	var failed []string
	for _, s := range chosen {
		m, err := s.measure(ctx, l)
		if err != nil {
			return err
		}
		if m.Failed != "" {
			failed = append(failed, m.Name+": "+m.Failed)
		}
		m.Origin = from
		report.put(m)
		if err := o.write(report); err != nil { // after each: an interrupt loses only what was under way
			return err
		}
		if m.Failed != "" {
			l.reset(ctx)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("measure everything: %s", strings.Join(failed, "; "))
	}
	return nil
}

// measure takes a scenario. One that fails is said to, with the rounds that it finished, and does not take the others
// with it.
func (s scenario) measure(ctx context.Context, l *lab) (*measurement, error) {
	fmt.Fprintf(os.Stderr, "%s\n", s.name)
	if l.left {
		l.reset(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.most,
		fmt.Errorf("not done within %.0f minutes", s.most.Minutes()))
	defer cancel()
	begun := time.Now()
	l.path, l.tunnels, l.queues, l.section = nil, nil, nil, nil
	rows, err := s.run(limited, l)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !r.any() })
	m := &measurement{Name: s.name, Rows: rows, Path: l.path, Tunnels: l.tunnels, Queues: l.queues,
		Section: l.section}
	if err != nil {
		fmt.Fprintf(os.Stderr, "    failed after %.0f s: %v\n", time.Since(begun).Seconds(), err)
		m.Failed = cause(limited, err)
	}
	for _, row := range m.Rows {
		fmt.Fprintf(os.Stderr, "    %s\n", strings.Join(row.cells(), " | "))
	}
	fmt.Fprintf(os.Stderr, "    (%.0f s)\n", time.Since(begun).Seconds())
	return m, nil
}

// cause says why a scenario failed, in a line that can be published: without paths of this machine.
func cause(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	text := lines[0]
	if len(lines) > 1 { // what a command complained about last
		text += ": " + lines[len(lines)-1]
	}
	return paths.ReplaceAllStringFunc(text, filepath.Base)
}

// paths are absolute; fractions, prefixes of addresses and the like have something before their slash.
var paths = regexp.MustCompile(`\B(/[^\s/:;,"'()\[\]{}]+)+/?`)

func (o options) write(d *document) error {
	if o.out == "" {
		return nil
	}
	plots, err := d.draw(filepath.Dir(o.out))
	if err := errors.Join(err, d.write(o.out, plots)); err != nil { // without plots rather than not
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
