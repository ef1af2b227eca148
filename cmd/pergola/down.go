package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/api/client"
	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

func newDown(a *app) *cobra.Command {
	var all, purge bool
	var file string
	cmd := &cobra.Command{
		Use:     "down [SLICE|FILE]",
		Aliases: []string{"destroy"},
		Short:   "Take a network down, without a trace",
		Long: `Take a network down: its nodes, links and addresses go, and nothing else does. Without an argument this is the
network of the topology file in the current directory, or the only one there is.

With --purge the server's state and the images it keeps go too, once the last network is down.`,
		Example:           "  pergola down\n  pergola down abilene\n  pergola down --all",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && (len(args) > 0 || file != "") {
				return ui.Usage("", "--all takes every network down: it goes with no name")
			}
			word := file
			if len(args) > 0 {
				word = args[0]
			}
			return a.down(cmd.Context(), word, all, purge)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "take every network down")
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the server's state too")
	cmd.Flags().StringVarP(&file, "topo", "t", "", "the topology `FILE` of the network")
	return cmd
}

func (a *app) down(ctx context.Context, word string, all, purge bool) error {
	c, err := a.dial(ctx)
	if errors.Is(err, client.ErrNoServer) {
		a.Say("nothing to do: no server is running, so no network is")
		return a.emitDown(nil)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	names, err := a.toGoDown(ctx, c, word, all)
	if err != nil {
		return err
	}
	p := a.Progress()
	defer p.Close()
	for _, name := range names {
		if err := c.Delete(ctx, name); err != nil && !isNotFound(err) {
			return fmt.Errorf("take %s down: %w", name, err)
		}
	}
	for _, name := range names {
		if err := follow.Gone(ctx, c, p, name); err != nil && !isNotFound(err) {
			if ctx.Err() != nil {
				return ui.Interrupted("the server goes on taking " + name + " down; `pergola ls` shows when it is gone")
			}
			return err
		}
		p.Note("%s is down", name)
	}
	p.Close()
	return a.emitDown(names)
}

// toGoDown lists the networks that are meant.
func (a *app) toGoDown(ctx context.Context, c *client.Client, word string, all bool) ([]string, error) {
	if all {
		slices, err := c.Slices(ctx)
		names := make([]string, len(slices))
		for i, s := range slices {
			names[i] = s.Name
		}
		return names, err
	}
	name, err := source.NameOf(word)
	if err != nil {
		return nil, err
	}
	// The file here is what the user works on: another network that happens to be the only one is not meant.
	if word == "" {
		name = source.Described(".")
	}
	name, err = target.Slice(ctx, c, name, "")
	return []string{name}, err
}

func (a *app) emitDown(names []string) error {
	if !a.JSON {
		return nil
	}
	return a.Emit(append([]string{}, names...))
}
