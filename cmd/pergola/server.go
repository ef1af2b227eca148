package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/server"
	"github.com/pergola-net/pergola/host/agent"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/rootless"
	"github.com/pergola-net/pergola/host/sliver"
)

func newServer(a *app) *cobra.Command {
	o := serverOptions{role: pki.Server}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server in the foreground",
		Long: `Run the server: the store, the agent of this machine and the API, in one process.

It listens for other machines of a cluster at this machine's first global address, with TLS, and
prints the command by which they join. It uses port 7470 for the API, 7471 and 7472 for the
store. With --listen none, only this machine reaches it. With --join, it becomes one more server
of a cluster: of three servers one may fail.

` + "`pergola up`" + ` starts a server if none runs; only this machine reaches that one. When the server
ends, for whatever reason, the networks stay; the next server continues with them. A member of a
cluster needs --join only once.

An ordinary user's server works in namespaces of the user's own and for the user alone. Its directories
are in the user's home. ` + "`pergola status`" + ` lists what it does not have: a fast path, limits of nodes, ...`,
		Example: "  sudo pergola server\n  sudo pergola server --listen 192.0.2.1\n" +
			"  sudo pergola server --listen none --group pergola\n" +
			"  sudo pergola server --join https://192.0.2.1:7470 --token TOKEN",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, o) },
	}
	f := cmd.Flags()
	o.flags(f)
	f.BoolVar(&o.cfg.NewAuthority, "new-authority", false,
		"make a new certificate authority for the cluster, whose only server this is; all other "+
			"machines have to join again")
	f.BoolVar(&o.cfg.ExitWhenIdle, "exit-when-idle", false,
		"end when the last network has gone; a member of a cluster stays")
	return cmd
}

func newAgent(a *app) *cobra.Command {
	o := serverOptions{role: pki.Agent}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this machine as an agent of a cluster, in the foreground",
		Long: `Run this machine as a member of a cluster, whose servers keep the state. It joins with a token,
as ` + "`pergola token create`" + ` prints it; after that it has a certificate, and needs neither --join
nor a token. Every command works on every member.

When the agent ends, or no server answers, the networks continue, except for nodes with
reschedule: always.`,
		Example: "  sudo pergola agent --join https://192.0.2.1:7470 --token TOKEN\n  sudo pergola agent",
		Args:    arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, o) },
	}
	o.flags(cmd.Flags())
	return cmd
}

// Values of --xdp.
const (
	xdpAuto = "auto"
	xdpOff  = "off"
)

// serverOptions are the flags of server and agent.
type serverOptions struct {
	cfg    server.Config
	role   pki.Role
	labels []string
	xdp    string
	token  string // file of it
}

func (o *serverOptions) flags(f *pflag.FlagSet) {
	cfg := &o.cfg
	f.StringVar(&cfg.StateDir, "state-dir", machinesPlaces.state, "runtime `directory`, emptied by a reboot")
	f.StringVar(&cfg.DataDir, "data-dir", machinesPlaces.data, "`directory` of what survives a reboot")
	f.StringVar(&cfg.LogDir, "log-dir", machinesPlaces.log, "`directory` of what nodes print")
	f.StringVar(&cfg.Group, "group", "pergola", "`group` whose members may use the socket, if it exists")
	f.StringSliceVar(&cfg.Etcd, "etcd", nil, "`endpoints` of an etcd cluster, in place of the embedded store")
	f.StringVar(&cfg.EtcdTLS.CA, "etcd-ca", "", "PEM `file` of the authorities that may vouch for the etcd cluster")
	f.StringVar(&cfg.EtcdTLS.Cert, "etcd-cert", "", "PEM `file` of this server's certificate for the etcd cluster")
	f.StringVar(&cfg.EtcdTLS.Key, "etcd-key", "", "PEM `file` of that certificate's key")
	f.StringVar(&cfg.Host, "host", "", "`name` of this machine in the cluster (default: its host name)")
	f.StringVar(&cfg.Runtime, "runtime", "", "OCI runtime: a name or `path` (default: crun, else runc)")
	f.StringVar(&cfg.Listen, "listen", server.ListenAuto,
		"`address[:port]` at which other machines reach this one; auto: its first global "+
			"address; none: no other machine can")
	f.StringVar(&cfg.Advertise, "advertise", "",
		"`address[:port]` that they use instead, behind NAT (which tunnels do not cross)")
	f.StringVar(&cfg.Join, "join", "", "`URL` of a server of the cluster to join")
	f.StringVar(&cfg.Token, "token", "",
		"`token` to join with; it is visible in this machine's list of processes (default: "+
			"$PERGOLA_TOKEN)")
	f.StringVar(&o.token, "token-file", "", "`file` to read the token from; -: standard input")
	f.StringSliceVar(&cfg.HostPaths, "host-paths", nil,
		"`directories` of this machine, and single devices (/dev/kvm), that networks applied on other "+
			"machines may use; stored")
	f.Bool("host-network", false,
		"let networks applied on other machines use that of this one (kind: uplink); stored")
	f.Bool("outside", false,
		"let nodes of networks applied on other machines reach the outside from this one (outside: true); "+
			"stored")
	f.Bool("volumes", false,
		"let nodes of networks applied on other machines have volumes here, whose size nothing bounds; stored")
	f.StringSliceVar(&cfg.Ports, "ports", nil,
		"`ranges` of this machine's ports that networks applied on other machines, and processes in nodes, "+
			"may reserve; stored, in place of all that were stored before")
	f.StringSliceVar(&cfg.Underlay, "underlay", nil,
		"only these `interfaces` carry links to other machines (default: that of the address)")
	f.StringVar(&o.xdp, "xdp", xdpAuto,
		"`mode` of the underlay: auto, with XDP programs at interfaces whose driver supports them; or "+
			"off, with tc programs only")
	f.Float64Var(&cfg.BestEffort, "best-effort", 0,
		"`share` of each core, up to 1, that frames of tunnels without a reservation may have where XDP "+
			"programs receive them; they then wait for those with one. 0: all are alike")
	f.StringSliceVar(&o.labels, "label", nil,
		"label `key=value`, by which topologies choose machines; may be given several times")
}

func (a *app) serve(cmd *cobra.Command, o serverOptions) error {
	cfg := o.cfg
	var err error
	if cfg.Labels, err = parseLabels(o.labels, false); err != nil {
		return err
	}
	if cfg.NoXDP = o.xdp == xdpOff; !cfg.NoXDP && o.xdp != xdpAuto {
		return ui.Usage("", "--xdp is %s or %s, not %q", xdpAuto, xdpOff, o.xdp)
	}
	if b := cfg.BestEffort; b != 0 && (!(b >= 1e-6 && b <= 1) || cfg.NoXDP) {
		return ui.Usage("", "--best-effort is 0, or a share of each core from 0.000001 to 1, and needs "+
			"--xdp %s", xdpAuto)
	}
	if cfg.Token, err = o.readToken(a.In); err != nil {
		return err
	}
	if cfg.Join != "" && cfg.Token == "" {
		return ui.Usage("`pergola token create` on a member of the cluster prints the whole command",
			"--join needs a token: --token TOKEN, or --token-file FILE")
	}
	if network := cmd.Flags().Lookup("host-network"); network.Changed {
		on := network.Value.String() == "true"
		cfg.HostNetwork = &on
	}
	if outside := cmd.Flags().Lookup("outside"); outside.Changed {
		on := outside.Value.String() == "true"
		cfg.Outside = &on
	}
	if volumes := cmd.Flags().Lookup("volumes"); volumes.Changed {
		on := volumes.Value.String() == "true"
		cfg.Volumes = &on
	}
	if cfg.Join != "" && cfg.Listen == server.ListenNone {
		return ui.Usage("name one with --listen, or leave it out for this machine's first",
			"--join with --listen none: the other machines need an address")
	}
	if os.Geteuid() != 0 || rootless.Inside() {
		if err := a.becomeRoot(cmd, &cfg); err != nil {
			return err
		}
	}
	if _, err := user.LookupGroup(cfg.Group); err != nil && cmd.Flags().Changed("group") {
		a.warn([]string{"there is no group " + cfg.Group + ": only root can use this server"})
	}
	cfg.Role, cfg.Socket, cfg.Out = o.role, a.socket, a.Out
	cfg.Version, cfg.Commit = build()
	cfg.NewAgent = openAgent
	if rootless.Inside() {
		cfg.NewAgent, cfg.Own = openRootlessAgent, func(ctx context.Context) (func(), error) {
			return a.keepNamespaces(ctx, cfg.StateDir)
		}
	}
	return server.Run(cmd.Context(), cfg)
}

// becomeRoot gives an ordinary user's server the rights that it needs, in namespaces of the user's own: this process
// starts again there. There it only completes the configuration.
func (a *app) becomeRoot(cmd *cobra.Command, cfg *server.Config) error {
	if cfg.Join != "" || cfg.Listen != server.ListenAuto && cfg.Listen != server.ListenNone || len(cfg.Etcd) > 0 {
		return ui.Advise(errors.New("an ordinary user's server can be no member of a cluster"),
			"run it with sudo")
	}
	cfg.Listen, cfg.Group = server.ListenNone, "" // no group's members have the user's rights
	if rootless.Inside() {
		return nil
	}
	// Inside, the user has other rights, and these would be looked for elsewhere.
	args, own := slices.Clone(os.Args[1:]), usersPlaces()
	for _, dir := range []struct {
		flag  string
		named *string
		usual string
	}{
		{"state-dir", &cfg.StateDir, own.state}, {"data-dir", &cfg.DataDir, own.data},
		{"log-dir", &cfg.LogDir, own.log},
	} {
		if !cmd.Flags().Changed(dir.flag) {
			*dir.named = dir.usual
		}
		path, err := filepath.Abs(*dir.named)
		if err != nil {
			return err
		}
		args = append(args, "--"+dir.flag, path)
	}
	socket, err := filepath.Abs(a.socket)
	if err != nil {
		return err
	}
	err = rootless.Enter(cmd.Context(), cfg.StateDir, holding, append(args, "--socket", socket))
	var denied *rootless.DeniedError
	if errors.As(err, &denied) {
		return ui.Advise(err, "%s\nor run it with sudo", denied.Remedy)
	}
	return err
}

// keepNamespaces has the user's namespaces held for as long as something of a network is in them.
func (a *app) keepNamespaces(ctx context.Context, stateDir string) (leave func(), err error) {
	if err := rootless.Keep(ctx, stateDir, holding); err != nil {
		return nil, err
	}
	return func() {
		names, err := sliver.Left(stateDir)
		if err == nil && len(names) == 0 {
			err = rootless.Leave(stateDir)
			_ = os.Remove(stateDir) // unless something else is there
		}
		if err != nil {
			a.warn([]string{err.Error()})
		}
	}, nil
}

// openAgent gives the agent of a machine where this process has root's rights.
func openAgent(ctx context.Context, c server.AgentConfig) (server.Agent, error) {
	return newAgentOf(ctx, c, machine.Root{StateDir: c.StateDir, Log: c.Log})
}

func newAgentOf(ctx context.Context, c server.AgentConfig, platform machine.Platform) (server.Agent, error) {
	runtime, err := sliver.New(ctx, sliver.Config{
		StateDir: c.StateDir, LogDir: c.LogDir, BlobDir: c.BlobDir, VolumeDir: c.VolumeDir, Runtime: c.Runtime,
	})
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a, err := agent.New(ctx, agent.Config{
		Host: c.Host, Runtime: runtime, Platform: platform,
		Store: c.Store, Events: c.Events, Log: c.Log, Cluster: c.Cluster, Terms: c.Terms, Decider: c.Decider,
		StateDir: c.StateDir, LogDir: c.LogDir, Watchdog: []string{"/proc/self/exe", verbWatchdog},
	})
	if err != nil {
		runtime.Close()
		return nil, err
	}
	return a, nil
}

// openRootlessAgent gives the agent of a machine where this process is an ordinary user's, in namespaces of its own.
func openRootlessAgent(ctx context.Context, c server.AgentConfig) (server.Agent, error) {
	return newAgentOf(ctx, c, machine.Rootless{StateDir: c.StateDir, Log: c.Log})
}

// readToken finds the token to join with. On the command line, every user of the machine can see it.
func (o *serverOptions) readToken(stdin io.Reader) (string, error) {
	switch {
	case o.token != "" && o.cfg.Token != "":
		return "", ui.Usage("keep one of them", "--token and --token-file both name a token")
	case o.token == "-":
		line, err := bufio.NewReader(io.LimitReader(stdin, maxToken)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the token from standard input: %w", err)
		}
		return strings.TrimSpace(line), nil
	case o.token != "":
		text, err := os.ReadFile(o.token)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	case o.cfg.Token == "" && o.cfg.Join != "":
		return os.Getenv("PERGOLA_TOKEN"), nil
	}
	return o.cfg.Token, nil
}

const maxToken = 1 << 10
