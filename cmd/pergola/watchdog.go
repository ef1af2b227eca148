package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// verbWatchdog is the command by which an agent starts its watchdog.
const verbWatchdog = "watchdog"

func newWatchdog(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    verbWatchdog + " DIR",
		Short:  "End nodes that may start elsewhere when this host's lease ends and no agent runs",
		Hidden: true,
		Args:   arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := member.Marked{
				End: func() (int, error) { return sliver.EndMarked(args[0], plan.FenceNote) },
				Has: func() (bool, error) { return sliver.HasMarked(args[0], plan.FenceNote) },
			}
			return member.RunWatchdog(cmd.Context(), args[0], nodes,
				slog.New(slog.NewTextHandler(a.Err, nil)))
		},
	}
}
