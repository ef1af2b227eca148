package main

import (
	"context"
	"errors"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/agent"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/server"
)

// Where a server keeps its things, unless its flags say otherwise.
const (
	defaultStateDir = "/run/pergola"
	defaultDataDir  = "/var/lib/pergola"
	defaultLogDir   = "/var/log/pergola"
	defaultSocket   = defaultStateDir + "/pergola.sock"
	serverLog       = defaultLogDir + "/server.log" // of a server that `up` started
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
			if os.Geteuid() != 0 {
				return ui.Advise(errors.New("the server makes containers, network devices and eBPF programs, which only root may"),
					"run it with sudo, or start the service: systemctl start pergola")
			}
			if _, err := user.LookupGroup(cfg.Group); err != nil && cmd.Flags().Changed("group") {
				a.warn([]string{"there is no group " + cfg.Group + ": only root can use this server"})
			}
			cfg.Socket = a.socket
			cfg.Version, cfg.Commit = build()
			return server.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.StateDir, "state-dir", defaultStateDir, "runtime `directory`, emptied by a reboot")
	f.StringVar(&cfg.DataDir, "data-dir", defaultDataDir, "`directory` of what survives a reboot")
	f.StringVar(&cfg.LogDir, "log-dir", defaultLogDir, "`directory` of what nodes print")
	f.StringVar(&cfg.Group, "group", "pergola", "`group` whose members may use the socket, if it exists")
	f.StringSliceVar(&cfg.Etcd, "etcd", nil, "`endpoints` of an etcd cluster, in place of the embedded store")
	f.StringVar(&cfg.EtcdTLS.CA, "etcd-ca", "", "PEM `file` of the authorities that may vouch for the etcd cluster")
	f.StringVar(&cfg.EtcdTLS.Cert, "etcd-cert", "", "PEM `file` of this server's certificate for the etcd cluster")
	f.StringVar(&cfg.EtcdTLS.Key, "etcd-key", "", "PEM `file` of that certificate's key")
	f.StringVar(&cfg.Host, "host", "", "`name` of this machine in the store (default: its host name)")
	f.StringVar(&cfg.Runtime, "runtime", "", "OCI runtime: a name or `path` (default: crun, else runc)")
	f.BoolVar(&cfg.ExitWhenIdle, "exit-when-idle", false, "end when the last slice has gone")
	return cmd
}
