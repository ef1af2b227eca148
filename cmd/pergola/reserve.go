package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
)

func newReserve(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reserve",
		Short: "Show what nodes have reserved of machines, and take it back",
		Long: "Show what nodes have reserved of machines, and take it back. A node reserves by `reserve:`\n" +
			"and `ports:` in its topology, cores by `cpu:` and memory by `memory:`; while it runs,\n" +
			"ports and bandwidth by its control socket, and ports by binding them. What it reserved by\n" +
			"its socket can be taken back here.",
		Example: "  pergola reserve ls\n  pergola reserve ls h2\n  pergola reserve rm lab/web tcp/8080",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newReserveLs(a), changesNetworks(newReserveRm(a)))
	return cmd
}

func newReserveLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls [HOST]",
		Aliases: []string{"list"},
		Short:   "List what can be reserved, what is left, and which nodes have reserved it",
		Long: `List what nodes can reserve of machines, what is left, and which nodes have it. Nodes without a
reservation share what cannot be reserved; that is in no row. What a node asked for while it ran is
marked: + is what it reserved by its control socket, * is a port that its processes have bound.`,
		Example:           "  pergola reserve ls\n  pergola reserve ls h2 --json | jq '.[].resources[]'",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				host := ""
				if len(args) > 0 {
					host = args[0]
				}
				all, err := c.Reservations(ctx, host)
				switch {
				case err != nil && host != "":
					return a.noHost(ctx, c, host, err)
				case err != nil:
					return err
				case a.JSON:
					return a.Emit(all)
				}
				a.Table(report.Reservable(all))
				if t := report.Reservations(all); t != nil {
					a.Print("")
					a.Table(t)
				}
				return nil
			})
		},
	}
}

func newReserveRm(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "rm NODE PORT|INTERFACE...",
		Aliases: []string{"remove"},
		Short:   "Take back what a node has reserved while it ran, all or none",
		Long: `Take back ports, and the bandwidth of interfaces, that a node has reserved by its control socket
while it ran: all of them, or none. The node goes on, and is not told. What the topology gives it,
take out of the topology; a port that a process has bound is released when the process closes it.`,
		Example:           "  pergola reserve rm web tcp/8080 udp/5610\n  pergola reserve rm lab/web eth1",
		Args:              arguments(2, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, node, err := a.node(cmd.Context(), name, args[0])
			if err != nil {
				return err
			}
			defer net.Close()
			var what api.ReservationRelease
			for _, word := range args[1:] {
				if strings.Contains(word, "/") {
					what.Ports = append(what.Ports, word)
				} else {
					what.Interfaces = append(what.Interfaces, word)
				}
			}
			if err := net.Release(cmd.Context(), net.name, node, what); err != nil {
				return err
			}
			a.Say("%s/%s: released %s", net.name, node, strings.Join(args[1:], ", "))
			return nil
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}
