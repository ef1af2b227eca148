package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/agent"
	"github.com/pergola-net/pergola/server"
)

func newServer(a *app) *cobra.Command {
	cfg := server.Config{
		NewAgent: func(ctx context.Context, c server.AgentConfig) (server.Agent, error) {
			return agent.New(ctx, agent.Config(c))
		},
	}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server in the foreground",
		Long: "Run the server: the store, the agent of this machine and the API, in one process.\n\n" +
			"`pergola up` starts one by itself where none runs. When the server ends, by whatever cause, the networks stay;\n" +
			"the next server goes on with them.",
		Example: "  sudo pergola server\n  sudo pergola server --group pergola",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg.Socket = a.socket
			cfg.Version, cfg.Commit = build()
			return server.Run(ctx, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.StateDir, "state-dir", "/run/pergola", "runtime `directory`, emptied by a reboot")
	f.StringVar(&cfg.DataDir, "data-dir", "/var/lib/pergola", "`directory` of what survives a reboot")
	f.StringVar(&cfg.LogDir, "log-dir", "/var/log/pergola", "`directory` of what nodes print")
	f.StringVar(&cfg.Group, "group", "pergola", "`group` whose members may use the socket, if it exists")
	f.StringSliceVar(&cfg.Etcd, "etcd", nil, "`endpoints` of an etcd cluster, in place of the embedded store")
	f.StringVar(&cfg.Host, "host", "", "`name` of this machine in the store (default: its host name)")
	f.StringVar(&cfg.Runtime, "runtime", "", "OCI runtime: a name or `path` (default: crun, else runc)")
	f.BoolVar(&cfg.ExitWhenIdle, "exit-when-idle", false, "end when the last slice has gone")
	return cmd
}
