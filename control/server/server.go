// Package server runs the parts of a Pergola server in one process: store, controller, agent and API.
package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// Config configures a server.
type Config struct {
	StateDir string   // runtime state, gone after a reboot: /run/pergola
	DataDir  string   // what is to survive a reboot: /var/lib/pergola
	LogDir   string   // /var/log/pergola
	Socket   string   // empty: pergola.sock in StateDir
	Group    string   // whose members may use the socket; empty: root alone
	Etcd     []string // endpoints of an etcd cluster; empty: an embedded one in DataDir
	EtcdTLS  EtcdTLS
	Host     string // this machine's name in the store; empty: its host name
	Runtime  string // OCI runtime; empty: the agent chooses
	// ExitWhenIdle ends the server when its last slice has gone, or when none came for a while. A member of a
	// cluster stays.
	ExitWhenIdle bool
	MemberConfig
	Version string
	Commit  string
	// HostPaths are directories that slices of other machines' roots may use, HostNetwork lets these use this
	// machine's network. Nil: unchanged; a machine stores both.
	HostPaths   []string
	HostNetwork *bool
	// Outside lets nodes of any slice make connections to the outside, and Ports are ranges of this machine's ports
	// that they may reserve. nil: what was given when the server was started before.
	Outside *bool
	Ports   []string
	// Volumes lets nodes of any slice have volumes on this machine. Nil: unchanged.
	Volumes  *bool
	NewAgent func(context.Context, AgentConfig) (Agent, error)
	// Own is called once no other server uses the state directory, and what it gives when this one is about to
	// leave it to the next. nil: nothing is to be done.
	Own func(context.Context) (leave func(), err error)
	Log *slog.Logger // nil: standard error
}

// MemberConfig configures whether a server works together with other machines. A machine that is a member stores its
// membership: its server needs none of this when it starts again.
type MemberConfig struct {
	Role      pki.Role // what to be in a cluster: pki.Server, which is also meant where it is empty, or pki.Agent
	Listen    string   // where others reach this machine: ADDRESS[:PORT], ListenAuto, or ListenNone (also: empty)
	Advertise string   // ADDRESS[:PORT], if others reach it by another address
	Join      string   // URL of a server of the cluster to join
	Token     string   // with which
	Underlay  []string // interfaces that carry tunnels; empty: the one with the address
	NoXDP     bool     // interfaces have no line card
	// BestEffort is the share of each core, up to 1, that frames without a reservation may have at line cards,
	// behind those with one; 0: all are alike.
	BestEffort float64
	Labels     map[string]string
	// NewAuthority makes another certificate authority for the cluster, whose only server this machine is.
	NewAuthority bool
	Out          io.Writer // gets the command by which other machines join; nil: it is not printed

	renewal func(*x509.Certificate) time.Time // when a certificate is renewed; nil: pki.Renewal
}

// Agent makes this host hold what is wanted of it.
type Agent interface {
	rest.Agent
	controller.Host
	// Run works until ctx ends. What runs on the host stays as it is then.
	Run(ctx context.Context) error
}

// AgentConfig configures an agent.
type AgentConfig struct {
	Host     string
	StateDir string
	LogDir   string
	BlobDir  string
	// VolumeDir has the volumes of nodes.
	VolumeDir string
	Runtime   string
	Store     store.ForAgent
	Events    *events.Bus
	Log       *slog.Logger
	Cluster   *hosts.Membership // nil: this machine is alone
	Terms     hosts.TermsStore
	Decider   Decider // answers as soon as the agent runs
}

const (
	eventsKept    = 4096
	stopTimeout   = 5 * time.Second // for requests that are under way
	headerTimeout = 10 * time.Second
)

// Run runs a server until ctx ends, or until it is idle if that was asked for. The networks stay when it ends. One
// server can use a state directory.
func Run(ctx context.Context, cfg Config) error {
	named := cfg.Host != ""
	if err := cfg.complete(); err != nil {
		return err
	}
	tuneMemory()
	supervisor := takeSupervisor(ctx)
	defer supervisor.close()
	held, err := lock(ctx, cfg.StateDir, cfg.Socket)
	if err != nil {
		return err
	}
	defer held.Close()
	if cfg.Own != nil {
		leave, err := cfg.Own(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	listener, err := listen(ctx, cfg.Socket, cfg.Group) // early: clients that connect from now on wait
	if err != nil {
		return err
	}
	defer listener.Close()
	s := &server{Config: cfg, named: named, events: events.NewBus(eventsKept), idle: newIdle(),
		supervisor: supervisor}
	idle, err := s.run(ctx, listener)
	if idle {
		s.Log.Info("exit: no network is left")
		tidy(cfg.StateDir)
	}
	return err
}

func (cfg *Config) complete() error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(cfg.StateDir, "pergola.sock")
	}
	if cfg.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the name of this machine: %w", err)
		}
		cfg.Host = name
	}
	for dir, mode := range map[string]os.FileMode{cfg.StateDir: 0o755, cfg.DataDir: 0o700, cfg.LogDir: 0o750} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// tuneMemory trades processor time for memory: a server needs little of the former.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// server is one server while it runs.
type server struct {
	Config
	named      bool         // the user chose the name of this host
	cluster    *cluster     // nil where this machine is alone
	members    net.Listener // accepts other machines of the cluster; nil where this one is no server of one
	store      *store.Store // nil at an agent, which has desk's other end in its place
	near       *agents.Client
	session    *session.Client  // an agent's, with a server
	desk       *agents.Desk     // of a cluster's server
	sessions   *agents.Sessions // of agents with this server
	agent      Agent
	controller *controller.Controller // nil at an agent
	blobs      blob.Dir
	terms      *termsFile
	events     *events.Bus
	idle       *idle
	supervisor *supervisor
}

// run opens the parts, works, and closes them. It reports whether it ended because it was idle.
func (s *server) run(ctx context.Context, listener net.Listener) (idle bool, err error) {
	if s.terms, err = openTerms(s.DataDir); err == nil {
		err = errors.Join(s.terms.allow(s.HostPaths, s.HostNetwork, s.Outside, s.Ports),
			s.terms.allowVolumes(s.Volumes))
	}
	if err != nil {
		return false, err
	}
	if s.cluster, err = s.openCluster(ctx); err != nil {
		return false, err
	}
	if err := s.openStore(ctx); err != nil {
		return false, err
	}
	if s.store != nil {
		defer s.store.Close()
	}
	s.terms.records = s.records()
	if s.store != nil {
		s.pruneTerms(ctx)
	}
	s.blobs = blob.Dir(filepath.Join(s.DataDir, "blobs"))
	if s.cluster != nil {
		defer s.cluster.close()
	}
	if s.cluster != nil && s.cluster.IsServer() {
		if s.members, err = s.cluster.openListener(ctx); err != nil {
			return false, err
		}
		defer s.members.Close()
	}
	if err := s.openAgent(ctx); err != nil {
		return false, err
	}
	if s.session != nil {
		defer s.keepSession(ctx)() // longer than the agent works, which has last words
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	parts := s.start(working, stop, listener)
	s.announce(ctx)
	s.supervisor.notify("READY=1")
	s.Log.Info("ready", "socket", s.Socket, "version", s.Version)
	<-working.Done()
	s.supervisor.notify("STOPPING=1")
	parts.Wait()
	cause := context.Cause(working)
	switch {
	case errors.Is(cause, errIdle):
		return true, nil
	case ctx.Err() != nil:
		return false, nil // the end was asked for
	}
	return false, cause
}

// records are what is known here of slices and hosts.
func (s *server) records() rest.Records {
	if s.store == nil {
		return s.near
	}
	return s.store
}

// openStore opens this machine's own store, or that of the cluster. An agent has none: a server tells it what it has to
// know.
func (s *server) openStore(ctx context.Context) error {
	if s.cluster != nil && !s.cluster.IsServer() {
		s.openSession(ctx)
		return nil
	}
	certificates, err := s.EtcdTLS.config(s.Etcd)
	if err != nil {
		return err
	}
	cfg := store.Config{
		Dir: filepath.Join(s.DataDir, "store"), Endpoints: s.Etcd, TLS: certificates,
		LogFile: filepath.Join(s.LogDir, "etcd.log"),
	}
	if s.cluster != nil {
		if err := s.cluster.storeConfig(&cfg); err != nil {
			return err
		}
	}
	if s.store, err = store.Open(ctx, cfg); err != nil {
		return err
	}
	if s.cluster == nil {
		if err := s.store.LeaveHosts(ctx, s.Host); err != nil {
			s.store.Close()
			return fmt.Errorf("be alone: %w", err)
		}
		return nil
	}
	s.cluster.store = s.store
	if err := s.cluster.publishCA(ctx); err != nil {
		s.store.Close()
		return fmt.Errorf("store the cluster's authority: %w", err)
	}
	return nil
}

// offlineCache is the directory of an agent's offline cache.
func (s *server) offlineCache() string { return filepath.Join(s.StateDir, "told") }

// oldOfflineCaches are its directories in versions before this one. What is in them is of no use: the agent starts
// without a cache once, and needs a server to do so.
func (s *server) oldOfflineCaches() []string {
	return []string{filepath.Join(s.StateDir, "offline-cache"), filepath.Join(s.StateDir, "memory")}
}

// dropOfflineCache removes the offline cache, which is of an earlier cluster.
func (s *server) dropOfflineCache() error {
	for _, dir := range append(s.oldOfflineCaches(), s.offlineCache()) {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the offline cache of an earlier cluster: %w", err)
		}
	}
	return nil
}

// pruneTerms withdraws what was given to slices that are gone.
func (s *server) pruneTerms(ctx context.Context) {
	if err := s.terms.prune(ctx); err != nil && ctx.Err() == nil {
		s.Log.Warn("withdraw the grants of networks that are gone; try again at the next start", "error", err)
	}
}

// openAgent makes the agent and the controller, which asks the agent what the machine supports.
func (s *server) openAgent(ctx context.Context) error {
	cfg := AgentConfig{
		Host: s.Host, StateDir: s.StateDir, LogDir: s.LogDir, BlobDir: string(s.blobs), Runtime: s.Runtime,
		VolumeDir: filepath.Join(s.DataDir, "volumes"),
		Events:    s.events, Log: s.Log, Terms: s.terms,
	}
	decides := new(decider)
	if s.store == nil {
		cfg.Store, cfg.Decider = s.near, remoteDecider{s.near}
	} else {
		cfg.Store, cfg.Decider = s.store, decides
	}
	var err error
	if s.cluster != nil {
		s.ExitWhenIdle = false // other machines may need it
		if cfg.Cluster, err = s.membershipOf(s.cluster); err != nil {
			return err
		}
	}
	if s.agent, err = s.NewAgent(ctx, cfg); err != nil {
		return err
	}
	if s.store == nil {
		return nil
	}
	options := []controller.Option{controller.WithHolds(s.terms)}
	if s.cluster != nil {
		options = append(options, controller.InCluster(s.store, s.Host))
	}
	s.controller = controller.New(s.store, s.agent, s.blobs, s.events, options...)
	decides.controller.Store(s.controller)
	if s.cluster != nil {
		s.sessions = agents.NewSessions()
		s.cluster.sessions = s.sessions
		s.desk = agents.NewDesk(agents.DeskConfig{
			Store: s.store, Self: s.Host, Decider: decides, Blobs: blobsForAgents{s},
			Servers: s.cluster.Servers, Log: s.Log,
		})
	}
	return nil
}

// handler is the API.
func (s *server) handler() http.Handler {
	cfg := rest.Config{
		Records: s.records(), Store: s.store, Controller: s.controller, Agent: s.agent, Holds: s.terms,
		Blobs: s.blobs, Events: s.events, Version: s.Version, Commit: s.Commit, ExitsWhenIdle: s.ExitWhenIdle,
	}
	if s.cluster != nil {
		cfg.Cluster = s.cluster
	}
	return rest.New(cfg)
}

// tidy removes the server's own files from its state directory, and the directory if nothing else is there.
func tidy(dir string) {
	os.Remove(filepath.Join(dir, "lock"))
	removeEmpty(dir)
}

// removeEmpty removes a directory and those in it, as far as they are empty.
func removeEmpty(dir string) {
	entries, _ := os.ReadDir(dir) // of what cannot be read, nothing is removed
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir)
}
