package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func newProgramCounters(a *app) *cobra.Command {
	var name string
	var rates bool
	var o looks
	cmd := &cobra.Command{
		Use:   "counters [NODE...]",
		Short: "Show what running packet programs count",
		Long: `Show the counters of the packet programs of a network's nodes: those that a program declares
(PERGOLA_COUNTERS), and those of the platform: what became of the node's frames. They begin when
the node starts, and outlive replacements of the program.

With --watch, show them per second, again and again. NODE may be a shell pattern, in quotes.`,
		Example: "  pergola program counters\n  pergola program counters p1 --watch\n" +
			"  pergola program counters --json | jq '.programs[].counters'",
		Args:              arguments(0, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("program counters"); err != nil {
				return err
			}
			net, nodes, err := a.programNodes(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			return a.programCounters(cmd.Context(), net, nodes, rates, o)
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVar(&rates, "watch", false, "show what is counted, per second")
	o.add(cmd.Flags())
	return cmd
}

// programNodes finds the network and the nodes that are meant; no nodes: all.
func (a *app) programNodes(ctx context.Context, name string, args []string) (*network, []string, error) {
	if len(args) == 0 {
		net, err := a.network(ctx, name)
		return net, nil, err
	}
	return a.nodes(ctx, name, args)
}

func (a *app) programCounters(ctx context.Context, net *network, nodes []string, rates bool, o looks) error {
	read := func(ctx context.Context) (*api.SlicePrograms, error) { return a.readPrograms(ctx, net, nodes) }
	now, err := read(ctx)
	if err != nil {
		return err
	}
	a.warn(report.UnreachableHosts(now.Unreachable))
	show := func(p *api.SlicePrograms, before *api.SlicePrograms, span time.Duration) error {
		if a.JSON {
			return a.Emit(p)
		}
		t := report.ProgramCounters(p.Programs)
		if before != nil {
			t = report.ProgramRates(before.Programs, p.Programs, span)
		}
		if len(t.Rows) == 0 {
			a.Say("no node of these has a packet program that counts")
			return nil
		}
		a.Table(t)
		return nil
	}
	if !rates {
		return show(now, nil, 0)
	}
	return watch(ctx, a, o, now, read, func(before, after *api.SlicePrograms, span time.Duration) error {
		if a.IsTTY() && !a.JSON {
			a.Clear()
		}
		return show(after, before, span)
	})
}

// readPrograms asks for the packet programs of some nodes, or of all.
func (a *app) readPrograms(ctx context.Context, net *network, nodes []string) (*api.SlicePrograms, error) {
	all, err := net.Programs(ctx, net.name)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		others := func(p api.NodeProgram) bool { return !slices.Contains(nodes, p.Node) }
		all.Programs = slices.DeleteFunc(all.Programs, others)
	}
	return all, nil
}

// showPrograms adds the packet programs of a slice's nodes, or of one, to what is said of the slice.
func (a *app) showPrograms(ctx context.Context, net *network, spec *slice.Slice, node string) error {
	if !slices.ContainsFunc(spec.Nodes, func(n slice.Node) bool {
		return n.Program != nil && (node == "" || node == n.Name)
	}) {
		return nil
	}
	var nodes []string
	if node != "" {
		nodes = []string{node}
	}
	all, err := a.readPrograms(ctx, net, nodes)
	if err != nil {
		return fmt.Errorf("ask for packet programs: %w", err)
	}
	a.warn(report.UnreachableHosts(all.Unreachable))
	a.Print("")
	a.Table(report.Programs(all.Programs))
	if node == "" || len(all.Programs) != 1 {
		return nil
	}
	a.Print("interfaces: %s", report.ProgramInterfaces(all.Programs[0]))
	if t := report.ProgramCounters(all.Programs); len(t.Rows) > 0 {
		a.Print("")
		a.Table(t)
	}
	return nil
}
