package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/control/pki"
)

func newToken(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Let machines join the cluster",
		Long: `A token lets machines join the cluster until it expires or is revoked. It holds a secret, and
the fingerprint of the cluster's certificate authority, by which a machine verifies that it
joins the right cluster. A machine that has joined needs no token.`,
		Example: "  pergola token create\n  pergola token ls",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newTokenCreate(a), newTokenLs(a), newTokenRevoke(a))
	return cmd
}

// roles are those that tokens are for, as users write them.
var roles = map[string]pki.Role{"agent": pki.Agent, "server": pki.Server}

func newTokenCreate(a *app) *cobra.Command {
	var role, note string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token, and print the command that joins with it",
		Long: `Make a token, and print the command by which another machine joins. With --role server, that
machine also keeps the cluster's state: of three servers one may fail, of five two. The secret
is shown only once.`,
		Example: "  pergola token create\n  pergola token create --role server --life 1h --note rack7\n" +
			"  pergola token create --quiet",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, ok := roles[role]
			if !ok {
				return ui.Usage(ui.DidYouMean(role, "role", []string{"agent", "server"}),
					"--role: no role %q", role)
			}
			if life <= 0 {
				return ui.Usage("write such as --life 1h", "--life: %v", life)
			}
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				t, err := c.CreateToken(ctx, api.TokenRequest{Role: wanted, Life: life, Note: note})
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Emit(struct {
						*api.CreatedToken
						Command string `json:"command"`
					}{t, t.Command()})
				}
				a.Say("on the machine that is to join, as root, within %s:", span(life))
				a.Print("%s", t.Command())
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "agent", "what joins with it: `agent` or server")
	f.DurationVar(&life, "life", 24*time.Hour, "how long it is valid")
	f.StringVar(&note, "note", "", "a few `words` that the list shows")
	completeValues(cmd, "role", "agent", "server")
	return cmd
}

func newTokenLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the tokens, without their secrets",
		Example: "  pergola token ls\n  pergola token ls --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := c.Tokens(ctx)
				switch {
				case err != nil:
					return err
				case a.JSON:
					return a.Emit(all)
				case len(all) == 0:
					a.Say("there is no token: no machine can join; `pergola " +
						"token create` makes one")
					return nil
				}
				a.Table(report.Tokens(all, a.Styles, time.Now()))
				return nil
			})
		},
	}
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID...",
		Aliases: []string{"rm"},
		Short:   "Revoke tokens; machines that have joined stay",
		Example: "  pergola token revoke abcd2345",
		Args:    arguments(1, -1),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.completeFrom(cmd.Context(),
				func(ctx context.Context, c *client.Client) (ids []string) {
					all, _ := c.Tokens(ctx)
					for _, t := range all {
						ids = append(ids, t.ID)
					}
					return ids
				})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var revoked []string
				for _, word := range args {
					id := tokenID(word)
					if err := c.RevokeToken(ctx, id); err != nil {
						if isNotFound(err) {
							return ui.Advise(err, "`pergola token ls` lists them")
						}
						return err
					}
					a.Say("token %s revoked", id)
					revoked = append(revoked, id)
				}
				if a.JSON {
					return a.Emit(revoked)
				}
				return nil
			})
		},
	}
}

// tokenID takes a token's id, or the whole token, or its first parts.
func tokenID(word string) string {
	word = strings.TrimPrefix(word, "pergola-")
	id, _, _ := strings.Cut(word, "-")
	return id
}

// span writes how long a token lives.
func span(d time.Duration) string {
	switch {
	case d >= 2*time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return d.String()
}
