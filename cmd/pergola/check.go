package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// checkOptions are the flags of check.
type checkOptions struct {
	api.CheckRequest
	junit string
	wait  bool
}

func newCheck(a *app) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [NETWORK]",
		Short: "Run the checks of a network's file",
		Long: `Run the checks of the topology file. If it has none, or with --all-pairs, every router and host
pings every other one.

Exit status: 0 all checks hold; 1 some fail; 2 they could not be carried out; 3 there was nothing to
check.`,
		Example: `  pergola check
  pergola check abilene --all-pairs --junit result.xml
  pergola check --only denver-seattle`,
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := a.network(cmd.Context(), first(args))
			if err != nil {
				return ui.WithCode(err, ui.ExitUsage)
			}
			defer net.Close()
			return ui.WithCode(a.check(cmd.Context(), net, o), ui.ExitUsage)
		},
	}
	cmd.Flags().BoolVar(&o.AllPairs, "all-pairs", false, "every node pings every other, whatever the file says")
	cmd.Flags().StringSliceVar(&o.Names, "only", nil, "`NAME`s of the file's checks to carry out")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "of each check that names none, such as 10s")
	cmd.Flags().StringVar(&o.junit, "junit", "", "also write the results as JUnit XML to `FILE`; "+
		"- is standard output, without the table")
	_ = cmd.RegisterFlagCompletionFunc("only", a.completeIn(func(s *slice.Slice) (names []string) {
		for _, c := range s.Checks {
			names = append(names, c.Name)
		}
		return names
	}))
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until routing has converged first")
	return cmd
}

// check carries checks out and reports them. Its errors mean that this could not be done; a check that does not
// hold ends the command with ExitFailed.
func (a *app) check(ctx context.Context, net *network, o checkOptions) error {
	p := a.Progress()
	defer p.Close()
	if o.wait {
		limited, cancel := limit(ctx, defaultWait)
		defer cancel()
		if _, err := follow.Converged(limited, net, p, net.name); err != nil {
			return err
		}
	}
	results, err := net.Check(ctx, net.name, o.CheckRequest, func(c api.CheckProgress) {
		what := "checking " + net.name
		if c.Failed > 0 {
			what += fmt.Sprintf(" (%d failed)", c.Failed)
		}
		p.Step(what, c.Done, c.Total)
	})
	took := p.Elapsed()
	p.Close()
	switch {
	case ctx.Err() != nil:
		return ui.Interrupted("the network stays as it is")
	case err != nil:
		return fmt.Errorf("check %s: %w", net.name, err)
	}
	switch o.junit {
	case "":
	case "-":
		if err := report.JUnit(a.Out, net.name, results); err != nil {
			return fmt.Errorf("write JUnit results: %w", err)
		}
		return asStatus(results)
	default:
		if err := writeJUnit(o.junit, net.name, results); err != nil {
			return err
		}
	}
	return a.reportChecks(net.name, results, took)
}

func (a *app) reportChecks(name string, results []api.CheckResult, took time.Duration) error {
	if a.JSON {
		if err := a.Emit(append([]api.CheckResult{}, results...)); err != nil {
			return err
		}
	} else {
		table, hidden := report.Checks(results, a.Styles, a.Verbose)
		if len(table.Rows) > 0 {
			a.Table(table)
		}
		switch {
		case len(table.Rows)+hidden < len(results):
			a.Say("(summed up: -v and --junit list all %d checks)", len(results))
		case hidden > 0:
			a.Say("(%s that held not shown: -v shows all)", wording.Count(hidden, "check"))
		}
		a.Print("%s", report.Verdict(name, results, took, a.Terminal))
	}
	return asStatus(results)
}

// asStatus is the exit status of check, as an error.
func asStatus(results []api.CheckResult) error {
	if len(results) == 0 {
		return ui.Exit(ui.ExitNothing)
	}
	for _, r := range results {
		if !r.OK {
			return ui.Exit(ui.ExitFailed)
		}
	}
	return nil
}

func writeJUnit(path, name string, results []api.CheckResult) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write JUnit results: %w", err)
	}
	defer f.Close()
	if err := report.JUnit(f, name, results); err != nil {
		return fmt.Errorf("write JUnit results to %s: %w", path, err)
	}
	return f.Close()
}
