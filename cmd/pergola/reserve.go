package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/control/client"
)

func newReserve(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reserve",
		Short: "Show what nodes have reserved of machines",
		Long: "Show what nodes have reserved of machines. A node reserves by `reserve:` in its topology, " +
			"cores by\n`cpu:` and memory by `memory:`.",
		Example: "  pergola reserve ls\n  pergola reserve ls h2",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newReserveLs(a))
	return cmd
}

func newReserveLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls [HOST]",
		Aliases: []string{"list"},
		Short:   "List what can be reserved, what is left, and which nodes have reserved it",
		Long: `List what nodes can reserve of machines, what is left, and which nodes have it. Nodes without a
reservation share what cannot be reserved; that is in no row.`,
		Example:           "  pergola reserve ls\n  pergola reserve ls h2 --json | jq '.[].resources[]'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				host := ""
				if len(args) > 0 {
					host = args[0]
				}
				all, err := c.Reservations(ctx, host)
				switch {
				case err != nil && host != "":
					return a.noHost(ctx, c, host, err)
				case err != nil:
					return err
				case a.JSON:
					return a.Emit(all)
				}
				a.Table(report.Reservable(all))
				if t := report.Reservations(all); t != nil {
					a.Print("")
					a.Table(t)
				}
				return nil
			})
		},
	}
}
