package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/control/events"
)

func newEvents(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [NETWORK]",
		Short: "Show events: nodes that start or end, links that go up or down",
		Long: `Show recent events, of one network or of all. With -f, follow until Ctrl-C. With --json, each
event is one line.`,
		Example: "  pergola events\n  pergola events abilene -f\n" +
			"  pergola events -f --json | jq -r .message",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			err = c.Events(cmd.Context(), first(args), follow, func(e events.Event) error {
				if a.JSON {
					return a.EmitLine(e)
				}
				a.Print("%s", report.Event(e, a.Terminal))
				return nil
			})
			// Ctrl-C is the normal end of --follow.
			if follow && cmd.Context().Err() != nil {
				return nil
			}
			if err == nil && follow {
				return errors.New("the server ended: no more events")
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	return cmd
}
