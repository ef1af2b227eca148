package main

import (
	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/api/client"
	"github.com/pergola-net/pergola/cmd/pergola/internal/console"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// bestShell runs bash where the node has it.
const bestShell = "command -v bash >/dev/null && exec bash; exec sh"

func newShell(a *app) *cobra.Command {
	var name string
	var vtysh, birdc bool
	cmd := &cobra.Command{
		Use:   "shell NODE",
		Short: "Open a shell in a node, or its router's command line",
		Long: `Open bash (or sh) in a node; with --vtysh or --birdc, the command line of FRR or BIRD. The exit status is that of the
shell.`,
		Example:           "  pergola shell denver\n  pergola shell denver --vtysh",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			command := []string{"/bin/sh", "-c", bestShell}
			switch {
			case vtysh && birdc:
				return ui.Usage("", "--vtysh is of FRR and --birdc of BIRD: choose one")
			case vtysh:
				command = []string{"vtysh"}
			case birdc:
				command = []string{"birdc"}
			}
			net, node, err := a.node(cmd.Context(), name, args[0])
			if err != nil {
				return ui.WithCode(err, ui.ExitNotRun)
			}
			defer net.Close()
			return console.Run(cmd.Context(), net, a.Terminal, net.name, node, client.Exec{Command: command, Stdin: a.In})
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVar(&vtysh, "vtysh", false, "the command line of FRR")
	cmd.Flags().BoolVar(&birdc, "birdc", false, "the command line of BIRD")
	return cmd
}
