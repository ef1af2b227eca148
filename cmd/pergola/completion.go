package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/model/slice"
)

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Write a completion script for a shell",
		Long: `Write the completion script for bash, zsh or fish. It completes commands, flags and their values,
the names of running networks, of their nodes, interfaces and links, and of the cluster's machines.`,
		Example: `  pergola completion bash | sudo tee /etc/bash_completion.d/pergola >/dev/null
  pergola completion zsh > "${fpath[1]}/_pergola"
  pergola completion fish > ~/.config/fish/completions/pergola.fish`,
		Args:      arguments(1, 1),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			}
			return ui.Usage(ui.DidYouMean(args[0], "shell", shells),
				"no completion for the shell %q", args[0])
		},
	}
}

// completeValues offers the values that a flag takes.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeImportFlags offers the values of the flags of source.Options.
func completeImportFlags(cmd *cobra.Command) {
	completeValues(cmd, "daemon", source.Daemons...)
	completeValues(cmd, "routing", source.Protocols...)
	completeValues(cmd, "kind", source.KindRules()...)
}

// completionTimeout bounds how long a pressed tab key waits for the server.
const completionTimeout = time.Second

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeFrom makes a completer of what a server knows. Without a server there is nothing to offer.
func (a *app) completeFrom(ctx context.Context, list func(context.Context, *client.Client) []string) ([]string,
	cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := client.Dial(ctx, a.socket)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	return list(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeSlices(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNetworkFlag(cmd, nil, to)
}

// completeNetworkFlag offers the running networks, whatever arguments there are.
func (a *app) completeNetworkFlag(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd.Context(), func(ctx context.Context, c *client.Client) (names []string) {
		slices, _ := c.Slices(ctx)
		for _, s := range slices {
			names = append(names, s.Name)
		}
		return names
	})
}

// completeIn makes a completer of names within the network that the command line means.
func (a *app) completeIn(list func(*slice.Slice) []string) completer {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		name, _ := cmd.Flags().GetString("network")
		return a.completeFrom(cmd.Context(), func(ctx context.Context, c *client.Client) []string {
			name, err := target.Slice(ctx, c, name, source.Described("."))
			if err != nil {
				return nil
			}
			s, err := c.Slice(ctx, name)
			if err != nil {
				return nil
			}
			return list(s.Spec)
		})
	}
}

func (a *app) completeNodes(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return a.completeIn(target.NodeNames)(cmd, args, to)
}

func (a *app) completeLinks(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return a.completeIn(target.LinkNames)(cmd, args, to)
}

func (a *app) completeLSPs(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return a.completeIn(target.LSPNames)(cmd, args, to)
}

func (a *app) completeInterfaces(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return a.completeIn(target.InterfaceNames)(cmd, args, to)
}

func (a *app) completeHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd.Context(), func(ctx context.Context, c *client.Client) (names []string) {
		hosts, _ := c.Hosts(ctx)
		for _, h := range hosts {
			names = append(names, h.Name)
		}
		return names
	})
}
