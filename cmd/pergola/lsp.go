package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

func newLSP(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Look at label-switched paths (MPLS), set them up and tear them down",
		Long: `Look at label-switched paths, set them up and tear them down. Each leads one way: its first
router gives labels to packets for some prefixes, and the others look at these labels alone.

A static one has the labels that Pergola chose for it. With a bandwidth, or --signalling rsvp, the
routers agree on the labels by RSVP-TE (RFC 3209), and each link of the path reserves the bandwidth.`,
		Example: "  pergola lsp add pe1 pe2 --bandwidth 50Mbit\n  pergola lsp ls\n" +
			"  pergola lsp inspect pe1--pe2",
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newLSPLs(a), newLSPInspect(a), changesNetworks(newLSPAdd(a)), changesNetworks(newLSPSet(a)),
		changesNetworks(newLSPReroute(a)), changesNetworks(newLSPRm(a)))
	return cmd
}

func newLSPLs(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "ls [NETWORK]",
		Aliases: []string{"list"},
		Short:   "List the LSPs of a network",
		Long: `List the LSPs of a network, with the label between each two routers of a path. One is down where
a router of it does not switch its packets, or where none get labels.`,
		Example:           "  pergola lsp ls\n  pergola lsp ls core --json",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLSPs(cmd.Context(), either(first(args), name), func(all []report.LSP) error {
				if a.JSON {
					return a.Emit(all)
				}
				a.Table(report.LSPTable(all, a.Styles))
				return nil
			})
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

func newLSPInspect(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:               "inspect LSP",
		Short:             "Show what each router of an LSP does",
		Example:           "  pergola lsp inspect pe1--pe2",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeLSPs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLSPs(cmd.Context(), name, func(all []report.LSP) error {
				at := slices.IndexFunc(all, func(l report.LSP) bool { return l.Name == args[0] })
				switch {
				case at < 0:
					return ui.Usage(diagnostic.Suggest(args[0], lspNames(all)),
						"there is no LSP %q", args[0])
				case a.JSON:
					return a.Emit(all[at])
				}
				l := &all[at]
				if l.Signal == nil {
					a.Table(report.LSPHops(l, a.Styles))
					return nil
				}
				a.Table(report.SignalledLSP(l, a.Styles))
				if l.Measured != nil {
					fmt.Fprintln(a.Out)
					a.Table(report.LSPTraffic(l))
				}
				if l.Up {
					fmt.Fprintln(a.Out)
					a.Table(report.LSPHops(l, a.Styles))
				}
				return nil
			})
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

func lspNames(all []report.LSP) (names []string) {
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names
}

// withLSPs does something with the LSPs of a network, which may be the only one.
func (a *app) withLSPs(ctx context.Context, name string, do func([]report.LSP) error) error {
	net, err := a.network(ctx, name)
	if err != nil {
		return err
	}
	defer net.Close()
	all, err := a.lspsOf(ctx, net)
	if err != nil {
		return err
	}
	return do(all)
}

// lspsOf gives the LSPs of a network as they are.
func (a *app) lspsOf(ctx context.Context, net *network) ([]report.LSP, error) {
	s, err := net.Slice(ctx, net.name)
	if err != nil {
		return nil, err
	}
	is := &api.SliceLSPs{}
	if len(s.Spec.LSPs) > 0 {
		if is, err = net.LSPs(ctx, net.name); err != nil {
			return nil, fmt.Errorf("ask for the LSPs of %s: %w", net.name, err)
		}
		a.warn(report.UnreachableHosts(is.Unreachable))
	}
	return report.LSPs(s.Spec, is), nil
}
