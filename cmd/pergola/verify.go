package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

func newVerify(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "verify [NETWORK|NODE...]",
		Short: "Compare the routes of the fast path with those of the routers' kernels",
		Long: `Read the routes and neighbours of routers from their kernels, look each up in the maps of the
fast path as its programs do, and print every difference. Without NODE, this is done for all
routers. NODE may be a shell pattern, in quotes.

What changes during the comparison is compared again: a network in which routing converges has
no differences either.

Exit status: 0 no difference; 1 some; 2 it could not be determined.`,
		Example: "  pergola verify\n  pergola verify abilene\n" +
			"  pergola verify abilene/denver 'leaf*' --json",
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, nodes, err := a.verified(cmd.Context(), name, args)
			if err != nil {
				return ui.WithCode(err, ui.ExitUsage)
			}
			defer net.Close()
			return ui.WithCode(a.verify(cmd.Context(), net, nodes), ui.ExitUsage)
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

// verified finds out what the words mean: one network, or nodes of one. No nodes stand for all routers.
func (a *app) verified(ctx context.Context, name string, words []string) (*network, []string, error) {
	if len(words) == 0 {
		net, err := a.network(ctx, name)
		return net, nil, err
	}
	if len(words) == 1 && name == "" {
		if net, err := a.network(ctx, words[0]); err == nil {
			return net, nil, nil
		}
	}
	return a.nodes(ctx, name, words)
}

func (a *app) verify(ctx context.Context, net *network, nodes []string) error {
	if len(nodes) == 0 {
		nodes = []string{""}
	}
	all := api.Verification{Routers: []string{}, Differences: []api.Difference{}}
	for _, node := range nodes {
		v, err := net.Verify(ctx, net.name, node)
		if err != nil {
			return fmt.Errorf("verify %s: %w", net.name, err)
		}
		all.Routers = append(all.Routers, v.Routers...)
		all.Differences = append(all.Differences, v.Differences...)
		all.Unreachable = append(all.Unreachable, v.Unreachable...)
	}
	if a.JSON {
		if err := a.Emit(all); err != nil {
			return err
		}
	} else {
		if len(all.Differences) > 0 {
			a.Table(report.Differences(all.Differences))
		}
		a.Print("%s", report.Verified(net.name, all))
	}
	a.warn(report.UnreachableHosts(all.Unreachable))
	switch {
	case len(all.Differences) > 0:
		return ui.Exit(ui.ExitFailed)
	case len(all.Unreachable) > 0:
		return ui.Exit(ui.ExitUsage)
	}
	return nil
}
