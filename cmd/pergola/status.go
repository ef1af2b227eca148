package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/model/wording"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the cluster's servers, its machines and its networks",
		Long: `Show the servers that keep the cluster's state and whether enough of them answer, the number of
machines, and the networks. Without enough servers, the networks continue and can be inspected,
but nothing can be changed.

Exit status: 0; 1 if there is no quorum.`,
		Example: "  pergola status\n  pergola status --json | jq -r .trouble",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.Usage("`pergola inspect "+args[0]+"` shows it",
					"status is about the cluster: %q is one argument too many", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, err := c.Cluster(ctx)
				if err != nil {
					return err
				}
				if a.JSON {
					err = a.Emit(st)
				} else {
					err = a.status(ctx, c, st)
				}
				if err == nil && st.Trouble != "" {
					return ui.Exit(ui.ExitFailed)
				}
				return err
			})
		},
	}
}

func (a *app) status(ctx context.Context, c *client.Client, st *api.ClusterStatus) error {
	if st.Self == "" {
		a.Print("this machine is in no cluster")
	} else {
		a.Print("%s", clusterLine(st))
		a.Print("its certificate authority is valid until %s", st.Authority.UTC().Format(time.DateOnly))
		if len(st.Servers) > 0 {
			a.Print("")
			a.Table(report.Members(st.Servers, a.Styles))
		}
	}
	by := st.AnsweredBy
	a.Print("pergola %s answers: process %d, since %s", by.Version, by.PID,
		by.Started.Local().Format(time.DateTime))
	for _, what := range st.Lacks {
		a.Print("%s", a.Paint(a.Styles.Faint, "not here: "+what))
	}
	slices, err := c.Slices(ctx)
	if err != nil {
		return err
	}
	if len(slices) > 0 {
		a.Print("")
		a.Table(report.Slices(slices, a.Styles, time.Now()))
	}
	if st.Trouble != "" {
		a.warn([]string{st.Trouble})
	}
	a.warn(st.Warnings)
	return nil
}

// clusterLine says what there is of machines.
func clusterLine(st *api.ClusterStatus) string {
	role := "an agent"
	if st.Server {
		role = "a server"
	}
	return fmt.Sprintf("this is %s, %s of a cluster of %s, %d alive", st.Self, role,
		wording.Count(st.Hosts, "host"), st.Alive)
}
