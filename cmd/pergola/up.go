package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// upOptions are the flags of up.
type upOptions struct {
	source.Options
	file    string
	dryRun  bool
	wait    bool
	timeout time.Duration
}

func newUp(a *app) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:     "up [FILE]",
		Aliases: []string{"deploy", "apply"},
		Short:   "Start a network from its file, or apply changes of the file",
		Long: `Start a network from a topology file: Pergola's own YAML, a containerlab file (.clab.yml) or a
graph of the Internet Topology Zoo (.graphml). If the network already runs, only what differs is
changed. Without FILE, this is pergola.yaml in the current directory, or else the only topology
file there.

A server is started if none runs. Files that the topology names are read with your own rights.`,
		Example: `  pergola up
  pergola up lab.yaml --dry-run
  pergola up abilene.graphml --daemon frr --routing ospf --delay --wait`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && o.file != "" {
				return ui.Usage("", "FILE and -t: name the topology once")
			}
			return a.up(cmd.Context(), either(o.file, first(args)), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "topo", "t", "", "the topology `FILE`")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "show what would change, and change nothing")
	f.BoolVarP(&o.wait, "wait", "w", false, "wait until routing has converged")
	f.DurationVar(&o.timeout, "timeout", defaultWait, "how long --wait waits; 0 for ever")
	f.StringVar(&o.Name, "name", "", "name of the network, in place of the file's")
	o.AddImportFlags(f)
	completeImportFlags(cmd)
	return cmd
}

func (a *app) up(ctx context.Context, file string, o upOptions) error {
	src, err := source.Load(ctx, file, o.Options)
	if err != nil {
		return err
	}
	a.warn(src.Warnings)
	defer a.leftOut(src.LeftOut)
	p := a.Progress()
	defer p.Close()
	began := time.Now()
	net, applied, err := a.apply(ctx, p, src, o)
	if err != nil {
		p.Close()
		if ctx.Err() != nil && ui.Code(err) != ui.ExitInterrupted {
			return ui.Interrupted("nothing was changed")
		}
		return err
	}
	defer net.Close()
	a.warn(applied.Warnings)
	if o.dryRun {
		p.Close()
		return a.showPlan(applied)
	}
	st, err := a.comeUp(ctx, net, p, applied, o)
	p.Close()
	switch {
	case ctx.Err() != nil:
		return ui.Interrupted(fmt.Sprintf("the server goes on starting %s: `pergola up` "+
			"shows its progress again,\n"+
			"`pergola down %[1]s` takes it away", net.name))
	case err != nil:
		failed, printed := report.ExecLines(&st, began) // one may be the cause
		for _, line := range slices.Concat(printed, failed) {
			a.Say("%s", line)
		}
		return err
	}
	return errors.Join(a.isUp(ctx, net, applied, st, p.Elapsed()), a.execLines(&st, began))
}

// execLines shows what exec lines printed in nodes that were started since up began. Lines that failed are an error,
// whenever that was.
func (a *app) execLines(st *slice.Status, began time.Time) error {
	failed, printed := report.ExecLines(st, began)
	for _, line := range printed {
		a.Say("%s", line)
	}
	if len(failed) == 0 {
		return nil
	}
	return ui.Advise(errors.New("exec lines failed"), "%s", strings.Join(failed, "\n"))
}

// apply sends the topology, with the archives it names, to the server.
func (a *app) apply(ctx context.Context, p *ui.Progress, src *source.Source, o upOptions) (*network, *api.Applied,
	error) {
	p.Step("connecting to the server", 0, 0)
	c, err := a.ensure(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !o.dryRun {
		if err = src.Upload(ctx, c, p); err == nil {
			err = a.confirmUp(ctx, c, p, src)
		}
	}
	if err == nil {
		p.Step("sending "+src.Name, 0, 0)
		var applied *api.Applied
		if applied, err = c.Apply(ctx, src.Name, src.Topology, o.dryRun); err == nil {
			return &network{c, src.Name}, applied, nil
		}
		if err = located(src, err); ctx.Err() != nil && !o.dryRun { // the server may have done it
			err = ui.Interrupted("`pergola inspect " + src.Name + "` shows whether the server has taken it")
		}
	}
	c.Close()
	return nil, nil, err
}

// located gives the faults that the server found their places in the file.
func located(src *source.Source, err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || len(p.Errors) == 0 {
		return fmt.Errorf("%s: %w", src.Path, err)
	}
	var found topology.Diagnostics
	for _, e := range p.Errors {
		found = append(found, topology.Diagnostic{File: src.Path, Path: e.Location, Message: e.Message})
	}
	return topology.Locate(src.Topology, found)
}

// comeUp waits until the hosts have built what was applied and, if asked for, until routing has converged.
func (a *app) comeUp(ctx context.Context, net *network, p *ui.Progress, applied *api.Applied,
	o upOptions) (slice.Status, error) {
	st, err := follow.Settled(ctx, net, p, net.name, applied.Generation)
	if err != nil || !o.wait {
		return st, err
	}
	limited, cancel := limit(ctx, o.timeout)
	defer cancel()
	last, err := follow.Converged(limited, net, p, net.name)
	if err == nil {
		a.warnUnjudged(last)
	}
	return st, err
}

func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		a.Say("%s %s", a.PaintErr(a.Styles.Warn, "warning:"), w)
	}
}

// leftOut says what the network does not have of an imported file.
func (a *app) leftOut(lines []string) {
	for _, l := range lines {
		a.Say("%s %s", a.PaintErr(a.Styles.Warn, "left out:"), l)
	}
}

func (a *app) showPlan(applied *api.Applied) error {
	if a.JSON {
		return a.Emit(applied)
	}
	for _, line := range report.Plan(applied.Plan, a.Terminal) {
		a.Print("%s", line)
	}
	for _, line := range report.Placement(applied.Placement) {
		a.Print("on %s", line)
	}
	return nil
}

func (a *app) isUp(ctx context.Context, net *network, applied *api.Applied, st slice.Status, took time.Duration) error {
	if a.JSON {
		return a.Emit(struct {
			*api.Applied
			Status slice.Status `json:"status"`
		}{applied, st})
	}
	now, err := net.state(ctx)
	if err != nil {
		return err
	}
	byHand := report.Overrides(now.Overrides)
	defer func() {
		for _, line := range byHand {
			a.Say("changed by hand: %s", line)
		}
	}()
	if applied.Plan.Empty() {
		and := "and as the file says"
		if len(byHand) > 0 {
			and = "and as the file says but for what was changed by hand"
		}
		a.Say("%s is up, %s: nothing to change", net.name, and)
		return nil
	}
	for _, line := range report.Changes(applied.Plan, a.Terminal) {
		a.Say("%s", line)
	}
	for _, line := range report.Placement(applied.Placement) {
		a.Say("on %s", line)
	}
	a.Say("%s is up: %s, %s", net.name, report.PlanCounts(applied.Plan), ui.Elapsed(took))
	if applied.Plan.Op == api.Create {
		a.Say("%s", a.PaintErr(a.Styles.Faint,
			"look around: `pergola inspect`, `pergola graph`, `pergola shell NODE`; end: `pergola down`"))
	}
	return nil
}
