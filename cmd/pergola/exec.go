package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/console"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// execOptions are the flags of exec.
type execOptions struct {
	name    string
	all     bool
	noStdin bool
	tty     bool
	stdin   bool
	env     []string
	dir     string
}

func newExec(a *app) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec NODE -- COMMAND...",
		Short: "Run a command in a node, or in many",
		Long: `Run a command in a node. Its input, output and exit status are those of pergola; it gets a
terminal if pergola has one. With --all, or with a shell pattern such as 'leaf*' (in quotes), it
runs in many nodes at once: each line of output begins with the node's name, and the exit status
is the highest.

Exit status: that of the command; 125 if it could not be started.`,
		Example: `  pergola exec denver -- ip route
  pergola exec abilene/denver -- ping -c 3 seattle
  pergola exec 'leaf*' -- vtysh -c 'show ip ospf neighbor'
  pergola exec --all --json -- cat /proc/loadavg`,
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(cmd.Context(), cmd, args, o)
		},
	}
	a.sliceFlag(cmd, &o.name)
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "in all nodes of the network")
	f.BoolVarP(&o.noStdin, "no-stdin", "n", false, "read nothing: for loops that read a list")
	f.BoolVarP(&o.stdin, "interactive", "i", false, "pass on what is typed even where the output is no terminal")
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal (found out by itself)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set a variable, as `NAME=VALUE`")
	f.StringVarP(&o.dir, "workdir", "w", "", "start in the `DIRECTORY`")
	// Without "--", what follows the node belongs to the command: `exec denver ls -l`.
	f.SetInterspersed(slices.Contains(a.args, "--"))
	return cmd
}

func (a *app) exec(ctx context.Context, cmd *cobra.Command, args []string, o execOptions) error {
	var words []string
	if !o.all && len(args) > 0 {
		words, args = args[:1], args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	switch {
	case o.all && cmd.ArgsLenAtDash() > 0:
		return ui.Usage("", "--all runs in every node: leave out %q", args[0])
	case !o.all && len(words) == 0:
		return ui.Usage("see `pergola exec --help`", "pergola exec: NODE is missing: usage is `%s`",
			cmd.UseLine())
	case len(args) == 0:
		return ui.Usage("a shell is opened by `pergola shell NODE`",
			"pergola exec: COMMAND is missing: usage is `%s`", cmd.UseLine())
	}
	if o.all {
		words = []string{"*"}
	}
	net, nodes, err := a.nodes(ctx, o.name, words)
	if err != nil {
		return ui.WithCode(err, ui.ExitNotRun)
	}
	defer net.Close()
	e := api.ExecRequest{Command: args, Env: o.env, Dir: o.dir, TTY: o.tty}
	if len(nodes) > 1 || o.all || a.JSON {
		return console.Fan(ctx, net, a.Terminal, net.name, nodes, e)
	}
	// Beside a pager or a pipe, what is typed is not for the command.
	if aside := a.Stdin() != nil && a.Stdout() == nil; !o.noStdin && (!aside || o.stdin) {
		e.Stdin = a.In
	}
	return console.Run(ctx, net, a.Terminal, net.name, nodes[0], e)
}
