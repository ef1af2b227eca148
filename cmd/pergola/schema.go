package main

import (
	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/model/topology"
)

func newSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Write the JSON schema of the topology file",
		Long: `Write the JSON schema of the topology file. Editors use it to complete and to check. In VS Code
and other editors with the YAML language server, the first line of the file names it:

  # yaml-language-server: $schema=pergola.schema.json`,
		Example: "  pergola schema > pergola.schema.json",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.Out.Write(topology.Schema())
			return err
		},
	}
}
