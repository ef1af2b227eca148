package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/rounds"
)

// build is one of the two builds that are compared: a checkout in whose bin/ there are bench, pergola, and the
// tests of packages that make bench builds. Only flags that every version of bench has are used.
type build struct {
	name                       string
	dir, bench, pergola, tests string
	readings                   map[figure][]float64 // one value for each round, NaN where the round gave none
	order                      []figure
}

// comparison runs two builds in turn (A B A B): what else happens on the machine hits both alike.
type comparison struct {
	builds    [2]*build // before, now
	scenarios []scenario
	path      []string // flags of `pergola bench path`
	rounds    int
}

func (o options) compare(ctx context.Context, chosen []scenario) error {
	before := newBuild("before", o.against)
	now, err := o.thisBuild()
	if err != nil {
		return err
	}
	c := comparison{
		builds: [2]*build{before, now}, scenarios: chosen, path: strings.Fields(o.pathFlags), rounds: o.rounds,
	}
	for _, b := range c.builds {
		for _, program := range []string{b.bench, b.pergola} {
			if _, err := exec.LookPath(program); err != nil {
				return fmt.Errorf("compare with %s: %w", o.against, err)
			}
		}
	}
	// Where the other build was is of no meaning to a reader.
	command := strings.ReplaceAll(strings.Join(os.Args, " "), o.against, "OTHER")
	result := &comparisonResult{Origin: origin{Command: command, Rounds: o.rounds}}
	if result.Origin.Machine, err = describeMachine(ctx, now.pergola); err != nil {
		return err
	}
	if result.Before, err = pergolaVersion(ctx, before.pergola); err != nil {
		return err
	}
	err = c.run(ctx)
	result.Differences = c.differences()
	fmt.Print(result.table())
	if o.out != "" {
		err = errors.Join(err, o.keep(result))
	}
	return err
}

// keep puts a comparison into the report, whatever else that holds.
func (o options) keep(c *comparisonResult) error {
	report, err := readDocument(o.out)
	if err != nil {
		return err
	}
	report.putComparison(c)
	return o.write(report)
}

func newBuild(name, dir string) *build {
	bin := filepath.Join(dir, "bin")
	return &build{
		name: name, dir: dir, bench: filepath.Join(bin, "bench"),
		pergola: filepath.Join(bin, "pergola"), tests: bin,
		readings: map[figure][]float64{},
	}
}

// thisBuild is the running program with the binaries that its flags name.
func (o options) thisBuild() (*build, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	b := newBuild("now", dir)
	if b.bench, err = os.Executable(); err != nil {
		return nil, err
	}
	l, err := o.lab()
	if err != nil {
		return nil, err
	}
	b.pergola, b.tests = l.binary, l.tests
	return b, nil
}

// run takes all rounds. A scenario that fails is reported, and its figures of that round are missing.
func (c *comparison) run(ctx context.Context) error {
	var failed []error
	for round := range c.rounds {
		for _, s := range c.scenarios {
			for _, b := range c.builds {
				begun := time.Now()
				err := c.measure(ctx, b, s, round)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				fmt.Fprintf(os.Stderr, "round %d of %d: %s: %s (%.0f s)\n", round+1, c.rounds, s.name,
					b.name, time.Since(begun).Seconds())
				if err != nil {
					err = fmt.Errorf("measure %s, %s, round %d: %w", s.name, b.name, round+1, err)
					fmt.Fprintf(os.Stderr, "    %v\n", err)
					failed = append(failed, err)
				}
			}
		}
	}
	return errors.Join(failed...)
}

// measure runs one scenario once with one build.
func (c *comparison) measure(ctx context.Context, b *build, s scenario, round int) error {
	ctx, cancel := context.WithTimeout(ctx, s.most+time.Minute)
	defer cancel()
	measure := b.scenario
	if s.name == pathScenario { // without what carries frames beside Pergola: that takes most of the time
		measure = func(ctx context.Context, _ string) (*document, error) { return b.benchPath(ctx, c.path) }
	}
	d, err := measure(ctx, s.name)
	if err != nil {
		return err
	}
	b.take(d, round)
	return nil
}

// take adds the figures of one round.
func (b *build) take(d *document, round int) {
	for _, r := range d.readings() {
		if _, known := b.readings[r.figure]; !known {
			b.order = append(b.order, r.figure)
		}
		b.readings[r.figure] = append(b.padded(r.figure, round), r.value)
	}
}

// padded is what was read of a figure in the rounds before, NaN where one gave nothing.
func (b *build) padded(f figure, round int) []float64 {
	values := b.readings[f]
	for len(values) < round {
		values = append(values, math.NaN())
	}
	return values
}

// scenario runs the build's bench for one scenario.
func (b *build) scenario(ctx context.Context, name string) (*document, error) {
	dir, err := os.MkdirTemp("", "pgcompare-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	report := filepath.Join(dir, "report.md")
	_, err = b.output(ctx, b.bench, "-pergola", b.pergola, "-tests", b.tests, "-rounds", "1", "-only", name,
		"-out", report)
	if err != nil {
		return nil, err
	}
	return readDocument(report)
}

// benchPath runs the build's `pergola bench path`.
func (b *build) benchPath(ctx context.Context, flags []string) (*document, error) {
	out, err := b.output(ctx, b.pergola, append([]string{"bench", "path", "--json", "--quiet"}, flags...)...)
	if err != nil {
		return nil, err
	}
	result := &path.Result{}
	if err := json.Unmarshal(out, result); err != nil {
		return nil, fmt.Errorf("parse the output of bench path: %w", err)
	}
	return &document{Scenarios: []*measurement{{Name: pathScenario, Path: result}}}, nil
}

// output runs a program of the build. When the context ends, the program is interrupted and given time to remove what
// it made.
func (b *build) output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it once, by Cancel
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return out, nil
}

// differences lists all figures that both builds gave: medians, and ratios within a round.
func (c *comparison) differences() []difference {
	before, now := c.builds[0], c.builds[1]
	var all []difference
	for _, f := range before.order {
		r := f.row(before.readings[f], now.readings[f])
		if len(r.Values) == 0 {
			continue
		}
		ratios := r.ratios()
		all = append(all, difference{
			Scenario: f.Scenario, What: f.What, Unit: f.Unit, Control: f.Control,
			Before: rounds.Middle(r.Other), Now: rounds.Middle(r.Values), Better: finite(r.better()),
			Lowest: finite(slices.Min(ratios)), Highest: finite(slices.Max(ratios)),
		})
	}
	return all
}

// row pairs the values of rounds that both builds have.
func (f figure) row(before, now []float64) row {
	r := row{What: f.What, Unit: f.Unit, MoreIsBetter: f.MoreIsBetter}
	for i := range min(len(before), len(now)) {
		if !math.IsNaN(before[i]) && !math.IsNaN(now[i]) {
			r.Other, r.Values = append(r.Other, before[i]), append(r.Values, now[i])
		}
	}
	return r
}
