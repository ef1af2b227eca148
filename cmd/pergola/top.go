package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

func newTop(a *app) *cobra.Command {
	var o looks
	cmd := &cobra.Command{
		Use:   "top [NETWORK]",
		Short: "Show the traffic of all interfaces, that of the fast path included",
		Long: `Show the traffic of a network's interfaces, per second, the busiest first, until Ctrl-C.

IN and OUT are those of the node's interface. WALKED is the share of these frames that the fast
path carried past the node's kernel: ` + "`ip -s link`" + ` in the node does not count them. DROPS are
frames that the node sent into a link and that were lost there. Below are the tunnels to other
machines that carried frames, as the machine at each end counts them, the processor time of the
network's packet programs on each machine, with the frames that were dropped because none was
left, and the frames that the fast path punted to routers' kernels, by reason.

If the output is not a terminal, one table is written. With --json, the counters themselves are
written.`,
		Example: "  pergola top\n  pergola top abilene --every 5s\n  pergola top --json | jq " +
			"'.interfaces[].walked_in'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("top"); err != nil {
				return err
			}
			net, err := a.network(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			defer net.Close()
			return a.top(cmd.Context(), net, o)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func (a *app) top(ctx context.Context, net *network, o looks) error {
	read := func(ctx context.Context) (*api.SliceTraffic, error) { return net.Traffic(ctx, net.name) }
	before, err := read(ctx)
	if err != nil {
		return err
	}
	a.warn(report.UnreachableHosts(before.Unreachable))
	if a.JSON {
		return a.Emit(before)
	}
	return watch(ctx, a, o, before, read, func(before, after *api.SliceTraffic, span time.Duration) error {
		a.showTop(report.Rates(before, after, span), report.TunnelRates(before, after, span),
			report.ProgramTimes(before, after, span), report.PuntRates(before, after, span))
		return nil
	})
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
