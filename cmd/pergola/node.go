package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

func newNode(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Stop, start, pause or restart nodes",
		Long: `Stop, start, pause, resume or restart nodes, or list them. A node that was stopped or paused
stays so until it is started or resumed, also after a restart of the server and ` + "`pergola up`" + `.`,
		Example: "  pergola node stop denver\n  pergola node pause 'leaf*'\n  pergola node ls",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(
		newNodeVerb(a, api.NodeStart, "start NODE...", "Start nodes that were stopped", "started"),
		newNodeVerb(a, api.NodeStop, "stop NODE...",
			"Stop nodes, as if their power failed: links lose their carrier", "stopped"),
		newNodeVerb(a, api.NodePause, "pause NODE...",
			"Freeze all processes of nodes; links stay up", "paused"),
		newNodeVerb(a, api.NodeResume, "resume NODE...", "Let paused nodes go on", "resumed"),
		newNodeVerb(a, api.NodeRestart, "restart NODE...", "Start nodes anew, with their links", "restarted"),
		newNodeLs(a))
	return cmd
}

// newRestart is a short form of `node restart`.
func newRestart(a *app) *cobra.Command {
	return newNodeVerb(a, api.NodeRestart, "restart NODE...", "Start nodes anew, with their links", "restarted")
}

func newNodeVerb(a *app, verb api.NodeVerb, use, short, done string) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + ".\n\nNODE may be a shell pattern, in quotes: 'leaf*'. The command " +
			"returns when it is done.",
		Example: fmt.Sprintf("  pergola node %s denver\n  pergola node %[1]s abilene/denver\n"+
			"  pergola node %[1]s 'leaf*' -s fabric", verb),
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, nodes, err := a.nodes(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			return a.power(cmd.Context(), net, nodes, verb, done)
		},
	}
	a.sliceFlag(cmd, &name)
	return changesNetworks(cmd)
}

// power asks for a verb on each node, and waits until all have happened.
func (a *app) power(ctx context.Context, net *network, nodes []string, verb api.NodeVerb, done string) error {
	before, err := net.state(ctx)
	if err != nil {
		return err
	}
	if verb == api.NodeRestart || verb == api.NodeStop {
		if err := a.confirmLoss(ctx, net.Client, net.name, nodes...); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		if err := net.Node(ctx, net.name, node, verb); err != nil {
			return fmt.Errorf("%s %s: %w", verb, node, err)
		}
	}
	err = a.until(ctx, net, fmt.Sprintf("%s %s", verb, ui.Some(nodes)), func(st *slice.Status) bool {
		for _, node := range nodes {
			if !follow.NodeIs(verb, before.Status.Nodes[node], st.Nodes[node]) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, node := range nodes {
		a.Say("%s/%s %s", net.name, node, done)
	}
	if a.JSON {
		return a.Emit(nodes)
	}
	return nil
}

// until waits until a host reports that what was asked for by hand has happened.
func (a *app) until(ctx context.Context, net *network, what string, holds func(*slice.Status) bool) error {
	p := a.Progress()
	defer p.Close()
	err := follow.Until(ctx, net, p, net.name, what, holds)
	if ctx.Err() != nil {
		return ui.Interrupted("the server goes on with it")
	}
	return err
}

func newNodeLs(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:               "ls [NETWORK]",
		Aliases:           []string{"list"},
		Short:             "List the nodes of a network",
		Example:           "  pergola node ls\n  pergola node ls abilene --json",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withState(cmd.Context(), either(first(args), name), func(s *api.Slice) error {
				if a.JSON {
					return a.Emit(s.Status.Nodes)
				}
				a.Table(report.Nodes(s, a.Styles, time.Now()))
				return nil
			})
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// sliceFlag adds --network to a command that names nodes or links. --slice and -s are its older names.
func (a *app) sliceFlag(cmd *cobra.Command, name *string) {
	f := cmd.Flags()
	f.StringVarP(name, "network", "N", "", "the network, where several are running (also `NETWORK`/NODE)")
	f.StringVarP(name, "slice", "s", "", "as --network")
	_ = f.MarkHidden("slice")
	_ = cmd.RegisterFlagCompletionFunc("slice", a.completeNetworkFlag)
	_ = cmd.RegisterFlagCompletionFunc("network", a.completeNetworkFlag)
}

// withState calls f with all that is known of a slice.
func (a *app) withState(ctx context.Context, name string, f func(*api.Slice) error) error {
	net, err := a.network(ctx, name)
	if err != nil {
		return err
	}
	defer net.Close()
	s, err := net.state(ctx)
	if err != nil {
		return err
	}
	return f(s)
}

// nodes finds the nodes that words mean, all of one network: NODE, NETWORK/NODE or a shell pattern.
func (a *app) nodes(ctx context.Context, name string, words []string) (*network, []string, error) {
	var patterns []string
	for _, w := range words {
		in, pattern := target.Split(w)
		if in != "" && name != "" && in != name {
			return nil, nil, ui.Usage("one command works on one network",
				"%s and %s are two networks", name, in)
		}
		name = either(name, in)
		patterns = append(patterns, pattern)
	}
	net, err := a.network(ctx, name)
	if err != nil {
		return nil, nil, a.adviseNode(ctx, err, name, patterns)
	}
	found, err := matched(ctx, net, patterns)
	if err != nil {
		var known *ui.Error
		if guessed := errors.As(err, &known) && strings.HasPrefix(known.Do, "did you mean"); !guessed &&
			name == "" {
			if near := target.Elsewhere(ctx, net, net.Slice, net.name, patterns[0]); near != "" {
				err = ui.Advise(err, "did you mean %s?", near)
			}
		}
		net.Close()
		return nil, nil, err
	}
	return net, found, nil
}

// adviseNode adds to an error that one of several slices must be chosen, which of them has such a node.
func (a *app) adviseNode(ctx context.Context, err error, name string, patterns []string) error {
	if name != "" || len(patterns) == 0 || ui.Code(err) != ui.ExitUsage {
		return err
	}
	c, dialErr := a.dial(ctx)
	if dialErr != nil {
		return err
	}
	defer c.Close()
	if near := target.Elsewhere(ctx, c, c.Slice, "", patterns[0]); near != "" {
		return ui.Advise(err, "did you mean %s?", near)
	}
	return err
}

// matched gives the nodes that match any of the patterns, each once.
func matched(ctx context.Context, net *network, patterns []string) ([]string, error) {
	s, err := net.state(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	seen := map[string]bool{}
	for _, p := range patterns {
		names, err := target.Nodes(s.Spec, p)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if !seen[n] {
				found = append(found, n)
			}
			seen[n] = true
		}
	}
	return found, nil
}

// node finds the one node that a word means.
func (a *app) node(ctx context.Context, name, word string) (*network, string, error) {
	net, found, err := a.nodes(ctx, name, []string{word})
	switch {
	case err != nil:
		return nil, "", err
	case len(found) > 1:
		net.Close()
		return nil, "", ui.Usage("", "%q matches %s: name one", word, wording.Count(len(found), "node"))
	}
	return net, found[0], nil
}
