package main

import (
	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/host/rootless"
)

// verbHold is the command by which a user's server has its namespaces held.
const verbHold = "hold"

var holding = []string{verbHold} // as arguments

func newHold() *cobra.Command {
	return &cobra.Command{
		Use:    verbHold,
		Short:  "Hold the namespaces of a user's server while no server runs",
		Hidden: true,
		Args:   arguments(0, 0),
		RunE:   func(cmd *cobra.Command, _ []string) error { return rootless.Hold(cmd.Context()) },
	}
}
