package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newServer(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "server",
		Short:   "Run the server in the foreground",
		Example: "  sudo pergola server",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("not written yet")
		},
	}
}
