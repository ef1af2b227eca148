package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

const filterHelp = `A filter is a line: [table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT [queue N] [args BYTES],
as ` + "`pergola program test --help`" + ` has it. Table, priority and what stands before the arrow name it.`

func newFilter(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Add, list, remove and replace the filters of a packet program",
		Long: `Change what the packet program of a running node looks up, or list it with its hits.

` + filterHelp + `

Changes are there at once: each frame meets the filters as they were or as they are then. They are in
the memory of the kernel alone. They outlive the server, and ` + "`pergola up`" + ` with a newer program, if the
file has the same filters and the key the same size. Where the program is loaded anew, the filters are
those of the file: when the node or its machine was restarted, the node was moved, or a new version of
Pergola has another data path.`,
		Example: `  pergola filter add r1 'destination=10.1.0.0/16 -> send 2'
  pergola filter ls r1
  pergola filter rm r1 'destination=10.1.0.0/16'
  pergola filter replace r1 filters.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newFilterAdd(a), newFilterLs(a), newFilterRm(a), newFilterReplace(a))
	return cmd
}

func newFilterAdd(a *app) *cobra.Command {
	var name, file string
	cmd := &cobra.Command{
		Use:   "add NODE FILTER...",
		Short: "Add filters to a packet program, all or none",
		Long: "Add filters to the packet program of a node, all or none.\n\n" + filterHelp + `
One that is there already is an error.`,
		Example: `  pergola filter add r1 'destination=10.1.0.0/16 -> send 2' 'priority 9 protocol=1 -> punt'
  pergola filter add r1 --file more.txt`,
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := filterLines(args[1:], file)
			if err != nil {
				return err
			}
			return a.changeFilters(cmd.Context(), name, args[0], api.FilterChange{Insert: lines}, "added")
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().StringVar(&file, "file", "", "take more filters from `FILE`, one a line")
	return cmd
}

func newFilterRm(a *app) *cobra.Command {
	var name, file string
	cmd := &cobra.Command{
		Use:   "rm NODE FILTER...",
		Short: "Remove filters from a packet program, all or none",
		Long: "Remove filters from the packet program of a node, all or none.\n\n" + filterHelp + `
A verdict may be left out, and does not count.`,
		Example: `  pergola filter rm r1 'destination=10.1.0.0/16' 'priority 9 protocol=1'
  pergola filter rm r1 --file more.txt`,
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := filterLines(args[1:], file)
			if err != nil {
				return err
			}
			return a.changeFilters(cmd.Context(), name, args[0], api.FilterChange{Delete: lines}, "removed")
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().StringVar(&file, "file", "", "take more filters from `FILE`, one a line")
	return cmd
}

func newFilterReplace(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "replace NODE FILE",
		Short: "Replace all filters of a packet program by those of a file",
		Long: "Make the filters of a file all that the packet program of a node has, or change nothing.\n\n" +
			filterHelp + `
A frame meets all of a table as it was or all of it as it is then. Filters that stay keep their hits.
A file without filters removes all.`,
		Example:           "  pergola filter replace r1 filters.txt",
		Args:              arguments(2, 2),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			lines, err := filterFile(args[1])
			if err != nil {
				return err
			}
			net, node, err := a.node(ctx, name, args[0])
			if err != nil {
				return err
			}
			defer net.Close()
			if err := net.ReplaceFilters(ctx, net.name, node, lines); err != nil {
				return err
			}
			a.Say("%s/%s has %s", net.name, node, wording.Count(len(lines), "filter"))
			return nil
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

func newFilterLs(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "ls NODE",
		Aliases: []string{"list"},
		Short:   "List the filters of a packet program, with their hits",
		Long: `List the filters that the packet program of a node has: by table, and in each in the order in
which they win. HITS counts the frames that each decided about, since it was added.`,
		Example:           "  pergola filter ls r1\n  pergola filter ls r1 --json | jq '.filters[].hits'",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			net, node, err := a.node(ctx, name, args[0])
			if err != nil {
				return err
			}
			defer net.Close()
			all, err := net.Filters(ctx, net.name, node)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Emit(all)
			}
			if len(all.Filters) == 0 {
				a.Say("%s/%s has no filters", net.name, node)
				return nil
			}
			a.Table(report.Filters(all))
			return nil
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

func (a *app) changeFilters(ctx context.Context, name, word string, change api.FilterChange, done string) error {
	count := len(change.Insert) + len(change.Delete)
	if count == 0 {
		return ui.Usage("pergola filter add r1 'destination=10.1.0.0/16 -> send 2'", "FILTER is missing")
	}
	net, node, err := a.node(ctx, name, word)
	if err != nil {
		return err
	}
	defer net.Close()
	if err := net.ChangeFilters(ctx, net.name, node, change); err != nil {
		return err
	}
	a.Say("%s/%s: %s %s", net.name, node, wording.Count(count, "filter"), done)
	return nil
}

// filterLines are those of the command line, and those of a file, if one is named.
func filterLines(words []string, file string) ([]string, error) {
	if file == "" {
		return words, nil
	}
	more, err := filterFile(file)
	return append(words, more...), err
}

// filterFile reads filters, one a line, without comments.
func filterFile(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read filters: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
