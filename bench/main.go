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
	var rows []row
	for _, s := range scenarios {
		if !match.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s\n", s.name)
		more, err := s.run(ctx, l)
		if err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		for _, r := range more {
			fmt.Fprintf(os.Stderr, "    %s\n", strings.Join(r.cells(), " | "))
		}
		rows = append(rows, more...)
	}
	text := report(machine, rows, only != "", o.rounds)
	if l.path != nil {
		plots, err := draw(l.path, filepath.Dir(o.out))
		if err != nil {
			return err
		}
		text += pathSection(l.path, o.rounds, plots)
	}
	return o.write(text)
}

func (o options) write(text string) error {
	if o.out == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(o.out, []byte(text), 0o644)
}
