package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
)

func newLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List the running networks",
		Example: "  pergola ls\n  pergola ls --json | jq -r '.[].name'",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			slices, err := c.Slices(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Emit(slices)
			}
			if len(slices) == 0 {
				a.Say("no network is running: start one with `pergola up FILE`")
				return nil
			}
			a.Table(report.Slices(slices, a.Styles, time.Now()))
			return nil
		},
	}
}
