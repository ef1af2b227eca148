package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// topOptions are the flags of top.
type topOptions struct {
	every time.Duration
	count int
}

func newTop(a *app) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [SLICE]",
		Short: "Show the traffic of all interfaces, that of the fast path included",
		Long: `Show the traffic of a network's interfaces, per second, the busiest first, until Ctrl-C.

IN and OUT are those of the node's interface. WALKED is the share of these frames that the fast
path carried past the node's kernel: ` + "`ip -s link`" + ` in the node does not count them. DROPS are
frames that the node sent into a link and that were lost there. Below are the tunnels to other
machines that carried frames, as the machine at each end counts them, and the frames that the
fast path punted to routers' kernels, by reason.

If the output is not a terminal, one table is written. With --json, the counters themselves are
written.`,
		Example: "  pergola top\n  pergola top abilene --every 5s\n  pergola top --json | jq " +
			"'.interfaces[].walked_in'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.every <= 0 || o.count < 0 {
				return ui.Usage("write such as --every 2s", "top: a span of %v, %d times",
					o.every, o.count)
			}
			net, err := a.network(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			defer net.Close()
			return a.top(cmd.Context(), net, o)
		},
	}
	cmd.Flags().DurationVar(&o.every, "every", time.Second, "time between two looks")
	cmd.Flags().IntVarP(&o.count, "count", "n", 0, "tables to write; 0: until Ctrl-C on a terminal, else one")
	return cmd
}

func (a *app) top(ctx context.Context, net *network, o topOptions) error {
	before, err := net.Traffic(ctx, net.name)
	if err != nil {
		return err
	}
	a.warn(report.UnreachableHosts(before.Unreachable))
	if a.JSON {
		return a.Emit(before)
	}
	if o.count == 0 && !a.IsTTY() {
		o.count = 1
	}
	then := time.Now()
	for shown := 0; o.count == 0 || shown < o.count; shown++ {
		select {
		case <-ctx.Done():
			return nil // Ctrl-C ends it in order
		case <-time.After(o.every):
		}
		after, err := net.Traffic(ctx, net.name)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		span := now.Sub(then)
		a.showTop(report.Rates(before, after, span), report.TunnelRates(before, after, span),
			report.PuntRates(before, after, span))
		before, then = after, now
	}
	return nil
}

// showTop writes the tables; on a terminal, in place of the last ones, and of interfaces only as many rows as it has
// lines.
func (a *app) showTop(rates *ui.Table, below ...*ui.Table) {
	below = slices.DeleteFunc(below, func(t *ui.Table) bool { return len(t.Rows) == 0 })
	if a.IsTTY() {
		around := 2 // the header, and the line of the cursor
		for _, t := range below {
			around += 2 + len(t.Rows)
		}
		_, height := a.Size(0, len(rates.Rows)+around)
		rates.Rows = rates.Rows[:max(0, min(len(rates.Rows), height-around))]
		a.Clear()
	}
	a.Table(rates)
	for _, t := range below {
		a.Print("")
		a.Table(t)
	}
}
