package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

const defaultWait = 5 * time.Minute

func newWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [NETWORK]",
		Short: "Wait until a network is up and its routing has converged",
		Long: `Wait until every node runs and routing has converged: every router has a route to everything
that its routing domain announces, and packets that follow the routes arrive.
docs/convergence.md has the exact definition.

Exit status: 0 converged; 1 not within the timeout; 2 it could not be determined; 3 there are routers
of your own configuration, and their daemons do not answer.`,
		Example:           "  pergola wait && pergola check\n  pergola wait abilene --timeout 30s",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := a.network(cmd.Context(), first(args))
			if err != nil {
				return ui.WithCode(err, ui.ExitUsage)
			}
			defer net.Close()
			return a.wait(cmd.Context(), net, timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "how long to wait, such as 90s; 0 for ever")
	return cmd
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// wait waits until the slice is built and its routing has converged.
func (a *app) wait(ctx context.Context, net *network, timeout time.Duration) error {
	p := a.Progress()
	defer p.Close()
	limited, cancel := limit(ctx, timeout)
	defer cancel()
	var last *api.Convergence
	_, err := follow.Settled(limited, net, p, net.name, 0)
	if err == nil {
		last, err = follow.Converged(limited, net, p, net.name)
	}
	p.Close()
	if a.JSON && last != nil {
		if err := a.Emit(last); err != nil {
			return err
		}
	}
	if err != nil {
		return a.waitEnded(ctx, net, err)
	}
	a.warnUnjudged(last)
	if last.Routers == 0 {
		a.Say("%s is up; it has no router whose routing can be judged, so there is nothing to wait for",
			net.name)
		return nil
	}
	a.Say("%s has converged: %s, every destination reached (%s)", net.name, wording.Count(last.Routers, "router"),
		ui.Elapsed(p.Elapsed()))
	return nil
}

// warnUnjudged names the nodes of a network that has converged of which that is not known.
func (a *app) warnUnjudged(c *api.Convergence) {
	for _, n := range c.Unjudged {
		a.Say("%s its routing cannot be judged: %s", a.PaintErr(a.Styles.Warn, "warning:"), n)
	}
}

// limit is ctx with a timeout, or without one for 0.
func limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// waitEnded gives a failed wait its exit status.
func (a *app) waitEnded(ctx context.Context, net *network, err error) error {
	var not *follow.NotReached
	switch {
	case ui.Code(err) == ui.ExitNothing:
		return err
	case ctx.Err() != nil:
		return ui.Interrupted("the network stays as it is; `pergola wait " + net.name + "` waits again")
	case errors.As(err, &not):
		return ui.WithCode(err, ui.ExitFailed)
	}
	return ui.WithCode(err, ui.ExitUsage)
}
