// Command bench measures Pergola on this machine and writes docs/benchmarks.md: what is promised, what was measured, on what
// machine, by what command. It drives the real binary, as a user does, with a server and directories of its own.
//
//	bench -pergola bin/pergola -out docs/benchmarks.md [-only REGEXP] [-rounds N]
//
// Each measurement is repeated and its median is reported; where two things are compared, their rounds alternate (A B A B), so
// that what else happens on the machine hits both.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.pergola, "pergola", "bin/pergola", "`PATH` of the binary to measure")
	flag.StringVar(&o.out, "out", "", "write the report to this `FILE`; empty: standard output")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each measurement is repeated")
	only := flag.String("only", "", "measure only what matches this `REGEXP`")
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
	pergola, out string
	rounds       int
}

// scenario is one thing that is measured: one or more rows of the report.
type scenario struct {
	name string
	run  func(context.Context, *lab) ([]row, error)
}

var scenarios = []scenario{
	{"abilene", abilene},
	{"grid-frr", func(ctx context.Context, l *lab) ([]row, error) { return grid(ctx, l, "frr", 30) }},
	{"grid-bird", func(ctx context.Context, l *lab) ([]row, error) { return grid(ctx, l, "bird", 12) }},
	{"star-100", func(ctx context.Context, l *lab) ([]row, error) { return hosts(ctx, l, star, 100, limits{}) }},
	{"star-500", func(ctx context.Context, l *lab) ([]row, error) {
		return hosts(ctx, l, star, 500, limits{up: 8, down: 5})
	}},
	{"line-100", func(ctx context.Context, l *lab) ([]row, error) { return hosts(ctx, l, line, 100, limits{}) }},
	{"line-500", func(ctx context.Context, l *lab) ([]row, error) { return hosts(ctx, l, line, 500, limits{up: 30}) }},
	{"memory", memory},
	{"link", link},
	{"path", chains},
}

func (o options) run(ctx context.Context, only string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("measure: only root can bring networks up")
	}
	binary, err := filepath.Abs(o.pergola)
	if err != nil {
		return err
	}
	l, err := newLab(binary, o.rounds)
	if err != nil {
		return err
	}
	defer l.close()
	machine, err := describeMachine(ctx, binary)
	if err != nil {
		return err
	}
	results := results{rounds: o.rounds, partial: only != ""}
	for _, s := range scenarios {
		if !match.MatchString(s.name) {
			continue
		}
		if err := results.take(ctx, s, l); err != nil {
			return err
		}
	}
	text := results.report(machine)
	if l.path != nil {
		plots, err := draw(l.path, filepath.Dir(o.out))
		if err != nil {
			return err
		}
		text += pathSection(l.path, o.rounds, plots)
	}
	if err := o.write(text); err != nil {
		return err
	}
	if len(results.failed) > 0 {
		return fmt.Errorf("not everything could be measured: %s", strings.Join(results.failed, "; "))
	}
	return nil
}

// results are what the report is written from.
type results struct {
	rounds  int
	partial bool // on purpose
	rows    []row
	failed  []string
}

// patience is what one scenario may take at most; the longest, Mininet's line of 500 switches, takes five minutes, and the fast path twenty.
const patience = 40 * time.Minute

// take measures a scenario. One that fails is said to, and does not take the others with it.
func (r *results) take(ctx context.Context, s scenario, l *lab) error {
	fmt.Fprintf(os.Stderr, "%s\n", s.name)
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := s.run(limited, l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "    failed: %v\n", err)
		r.failed = append(r.failed, fmt.Sprintf("%s: %s", s.name, firstLine(err.Error())))
		return l.reset(ctx)
	}
	for _, row := range rows {
		fmt.Fprintf(os.Stderr, "    %s\n", strings.Join(row.cells(), " | "))
	}
	r.rows = append(r.rows, rows...)
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func (o options) write(text string) error {
	if o.out == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(o.out, []byte(text), 0o644)
}
