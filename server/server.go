// Package server puts the parts of a Pergola server together: store, controller, agent and API in one process.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/blob"
	"github.com/pergola-net/pergola/controller"
	"github.com/pergola-net/pergola/events"
	"github.com/pergola-net/pergola/store"
	"github.com/pergola-net/pergola/substrate"
)

// Config says where a server keeps its things and how it behaves.
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
	// ExitWhenIdle ends the server when its last slice has gone, or when nobody wants one.
	ExitWhenIdle bool
	Version      string
	Commit       string
	NewAgent     func(context.Context, AgentConfig) (Agent, error)
	Log          *slog.Logger // nil: standard error
}

// Agent makes this host look as wanted.
type Agent interface {
	api.Agent
	// Run works until ctx ends. What runs on the host stays as it is then.
	Run(ctx context.Context) error
}

// AgentConfig is what an agent is made of.
type AgentConfig struct {
	Host     string
	StateDir string
	LogDir   string
	BlobDir  string
	Runtime  string
	Store    *store.Store
	Events   *events.Bus
	Log      *slog.Logger
	Cluster  *Cluster // nil: this machine is alone
}

// Cluster is how this machine takes part in one.
type Cluster = substrate.Membership

const (
	rememberedEvents = 4096
	stopTimeout      = 5 * time.Second // for requests that are under way
	headerTimeout    = 10 * time.Second
)

// Run runs a server until ctx ends, or until it is idle if that was asked for. The networks stay when it ends. One
// server can use a state directory.
func Run(ctx context.Context, cfg Config) error {
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
	listener, err := listen(ctx, cfg.Socket, cfg.Group) // early: clients wait from now on, rather than find nobody
	if err != nil {
		return err
	}
	defer listener.Close()
	s := &server{Config: cfg, events: events.NewBus(rememberedEvents), idle: newIdle(), supervisor: supervisor}
	idle, err := s.run(ctx, listener)
	if idle {
		s.Log.Info("no slice is left: the server ends")
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

// tuneMemory trades processor time, of which a server needs little, for memory.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// server is one server while it runs.
type server struct {
	Config
	store      *store.Store
	agent      Agent
	blobs      blob.Dir
	events     *events.Bus
	idle       *idle
	supervisor *supervisor
}

// run opens the parts, works, and closes them. It reports whether it ended because it was idle.
func (s *server) run(ctx context.Context, listener net.Listener) (idle bool, err error) {
	certificates, err := s.EtcdTLS.config(s.Etcd)
	if err != nil {
		return false, err
	}
	s.store, err = store.Open(ctx, store.Config{
		Dir: filepath.Join(s.DataDir, "store"), Endpoints: s.Etcd, TLS: certificates, LogFile: filepath.Join(s.LogDir, "etcd.log"),
	})
	if err != nil {
		return false, err
	}
	defer s.store.Close()
	s.blobs = blob.Dir(filepath.Join(s.DataDir, "blobs"))
	s.agent, err = s.NewAgent(ctx, AgentConfig{
		Host: s.Host, StateDir: s.StateDir, LogDir: s.LogDir, BlobDir: string(s.blobs), Runtime: s.Runtime,
		Store: s.store, Events: s.events, Log: s.Log,
	})
	if err != nil {
		return false, err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	parts := s.start(working, stop, listener)
	s.supervisor.tell("READY=1")
	s.Log.Info("ready", "socket", s.Socket, "version", s.Version)
	<-working.Done()
	s.supervisor.tell("STOPPING=1")
	parts.Wait()
	cause := context.Cause(working)
	switch {
	case errors.Is(cause, errIdle):
		return true, nil
	case ctx.Err() != nil:
		return false, nil // somebody asked for it
	}
	return false, cause
}

var errIdle = errors.New("idle")

// handler is the API.
func (s *server) handler() http.Handler {
	return api.New(api.Config{
		Store: s.store, Controller: controller.New(s.store, s.agent, s.blobs, s.events), Agent: s.agent,
		Blobs: s.blobs, Events: s.events, Version: s.Version, Commit: s.Commit, ExitsWhenIdle: s.ExitWhenIdle,
	})
}

// tidy removes what the server itself put into its state directory, and the directory if nothing else is there.
func tidy(dir string) {
	os.Remove(filepath.Join(dir, "lock"))
	removeEmpty(dir)
}

// removeEmpty removes a directory, and those in it, as far as they are empty: what is left of something stays.
func removeEmpty(dir string) {
	entries, _ := os.ReadDir(dir) // of what cannot be read, nothing is removed
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	os.Remove(dir)
}
