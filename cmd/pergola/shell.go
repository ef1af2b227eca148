package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/console"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// bestShell runs bash where the node has it.
const bestShell = "command -v bash >/dev/null && exec bash; exec sh"

// suites are the routing suites by their command line.
var suites = map[string]slice.Daemon{"vtysh": slice.FRR, "birdc": slice.BIRD}

// speaks refuses the command line of one routing suite where the node runs the other.
func speaks(ctx context.Context, net *network, node, command string) error {
	s, err := net.state(ctx)
	if err != nil {
		return err
	}
	n := s.Spec.Node(node)
	if n == nil || n.Routing == nil || n.Routing.Daemon == suites[command] {
		return nil // it may have either in its own file system
	}
	for other, daemon := range suites {
		if daemon == n.Routing.Daemon {
			return ui.Usage(fmt.Sprintf("`pergola shell %s --%s`", node, other),
				"node %s runs %s, which has no %s", node, daemon, command)
		}
	}
	return nil
}

func newShell(a *app) *cobra.Command {
	var name string
	var vtysh, birdc bool
	cmd := &cobra.Command{
		Use:   "shell NODE",
		Short: "Open a shell in a node, or its router's command line",
		Long: `Open bash (or sh) in a node; with --vtysh or --birdc, the command line of FRR or BIRD. The exit
status is that of the shell.`,
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
			if vtysh || birdc {
				if err := speaks(cmd.Context(), net, node, command[0]); err != nil {
					return ui.WithCode(err, ui.ExitNotRun)
				}
			}
			return console.Run(cmd.Context(), net, a.Terminal, net.name, node,
				api.ExecRequest{Command: command, Stdin: a.In})
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVar(&vtysh, "vtysh", false, "the command line of FRR")
	cmd.Flags().BoolVar(&birdc, "birdc", false, "the command line of BIRD")
	return cmd
}
