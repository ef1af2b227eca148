package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/host/agent"
)

// verbSentry is the word by which an agent calls its sentry.
const verbSentry = "sentry"

func newSentry(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    verbSentry + " DIR",
		Short:  "End nodes that may start elsewhere when this host's lease ends and no agent does",
		Hidden: true,
		Args:   arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return agent.Sentry(cmd.Context(), args[0], slog.New(slog.NewTextHandler(a.Err, nil)))
		},
	}
}
