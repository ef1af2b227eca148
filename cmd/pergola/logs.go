package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/control/api"
)

func newLogs(a *app) *cobra.Command {
	var o api.LogOptions
	var name string
	cmd := &cobra.Command{
		Use:               "logs NODE",
		Short:             "Show the output of a node's first process",
		Example:           "  pergola logs denver --tail 20\n  pergola logs abilene/denver -f",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			net, node, err := a.node(ctx, name, args[0])
			if err != nil {
				return err
			}
			defer net.Close()
			err = a.logs(ctx, net, node, o)
			// Ctrl-C is the normal end of --follow.
			if o.Follow && ctx.Err() != nil {
				return nil
			}
			return err
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until Ctrl-C")
	cmd.Flags().IntVarP(&o.Tail, "tail", "n", 0, "only the last `N` lines; 0: all")
	return cmd
}

func (a *app) logs(ctx context.Context, net *network, node string, o api.LogOptions) error {
	r, err := net.Logs(ctx, net.name, node, o)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", node, err)
	}
	defer r.Close()
	if _, err = io.Copy(a.Out, r); err != nil {
		return fmt.Errorf("read the log of %s: %w", node, err)
	}
	return nil
}
