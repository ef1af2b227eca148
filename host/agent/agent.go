// Package agent makes one host look as wanted.
//
//	store ── inputs ──> plan ──┐
//	                           ├─ reconcile.Plan ── reconcile.Run ──> drive ──> machine: sliver, wire
//	machine ── observe ────────┘        │
//	                                    └──> report ──> store, events
//
// loop.go has the loop; each word of the picture is a package. inputs reads what the store wants of the host; observe
// takes a snapshot of what is there; drive makes and unmakes each kind of resource; report tells what was done. The
// machine (a runtime, a platform and its network) is given to the agent: see Config. The agent keeps nothing that it
// could not find out again: it may be killed at any instruction, and the next one goes on. Networks keep running
// meanwhile.
//
// Of a slice on several hosts, each holds its own part, with proxy ports for the rest. What an agent does as a member
// of a cluster is in membership.go; what it needs for that is package member.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/bound"
	"github.com/pergola-net/pergola/host/agent/drive"
	"github.com/pergola-net/pergola/host/agent/failures"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/metrics"
	"github.com/pergola-net/pergola/host/agent/report"
	"github.com/pergola-net/pergola/host/agent/serve"
	"github.com/pergola-net/pergola/host/agent/sockets"
	"github.com/pergola-net/pergola/host/agent/speakers"
	"github.com/pergola-net/pergola/host/agent/unwalked"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Config is what an agent needs.
type Config struct {
	Host     string           // this machine's name in the store
	Runtime  machine.Runtime  // runs the slivers; closed by Run
	Platform machine.Platform // of which the network is made
	Store    store.ForAgent
	Events   *events.Bus
	Log      *slog.Logger
	Cluster  *hosts.Membership // nil: this machine is alone
	Terms    hosts.TermsStore  // what slices may have of this machine in a cluster; nil: all they ask for
	Decider  serve.Decider     // of what nodes ask for while they run; nil: they can change nothing of that

	StateDir string   // of the watchdog
	LogDir   string   // of the watchdog
	Watchdog []string // command, with the state directory added, that calls member.RunWatchdog; empty: none
}

// Agent reconciles one host, and serves requests about its nodes. Its exported methods may be called from many
// goroutines.
type Agent struct {
	*serve.Server

	cfg        Config
	machine    *machine.Machine
	inputs     *inputs.Inputs
	driver     *drive.Driver
	fastPath   *fastpath.FastPath
	labels     *labels.Labels
	speakers   *speakers.Speakers
	unwalked   *unwalked.Unwalked
	sockets    *sockets.Sockets
	bound      *bound.Ports
	reports    *report.Reports
	metrics    *metrics.Metrics
	membership *membership
	contact    *store.Contact
	workers    int

	wakes chan struct{} // something may be other than wanted: a pass is due

	mu       sync.Mutex         // guards all below; taken before that of the reports
	failures failures.Failures  // what is held back
	cancel   context.CancelFunc // of the plan under way
}

// How often slivers of this host, all together, change what is stored: all hosts hear of it, and what takes something
// of hosts ends the admissions that are under way at other members.
const (
	changesPerSecond = 8
	changesAtOnce    = 32
)

// New gives an agent, and adopts the network that an earlier one left.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	contact := store.NewContact(cfg.Log)
	a := &Agent{cfg: cfg, contact: contact, metrics: metrics.New(), workers: 3 * runtime.NumCPU(),
		wakes: make(chan struct{}, 1)}
	a.machine = machine.New(cfg.Runtime, cfg.Platform, a.Wake)
	a.fastPath = fastpath.New(cfg.Log, a.metrics.Differed)
	a.labels = labels.New(cfg.Log)
	a.speakers = speakers.New(cfg.Log, a.Wake, cfg.Events.Publish)
	a.unwalked = unwalked.New(cfg.Log, a.metrics.Unwalked)
	a.inputs = inputs.New(inputs.Config{
		Host: cfg.Host, Cluster: cfg.Cluster, Store: cfg.Store, Contact: contact, Terms: cfg.Terms,
		Reservable: cfg.Platform.Reservable(), Log: cfg.Log, Fenced: a.isFenced,
		Changes: a.resetFailures, Gone: a.forget,
	})
	a.reports = report.New(report.Config{
		Host: cfg.Host, Alone: cfg.Cluster == nil, Store: cfg.Store, Contact: contact, Inputs: a.inputs,
		Events: cfg.Events, Log: cfg.Log,
		LogPath: cfg.Runtime.LogPath, Trouble: a.fastPath.Trouble, Wake: a.Wake,
		Ports: func(id sliver.ID) string { return a.bound.Trouble(id) },
	})
	watchdog := &member.Watchdog{StateDir: cfg.StateDir, LogDir: cfg.LogDir, Command: cfg.Watchdog, Log: cfg.Log}
	a.driver = drive.New(drive.Config{
		Machine: a.machine, FastPath: a.fastPath, Log: cfg.Log, CallWatchdog: watchdog.Call,
		Warn: a.reports.Warn, Restarted: a.reports.CountRestart, Wake: a.Wake,
	})
	a.membership = newMembership(cfg, a.machine, a.inputs, a.driver, contact, watchdog, a.Wake, a.replan)
	a.Server = serve.New(cfg.Host, cfg.Cluster == nil, a.machine, a.inputs, a.fastPath, a.labels, a.speakers,
		cfg.Decider)
	changes := rate.NewLimiter(changesPerSecond, changesAtOnce)
	a.sockets = sockets.New(a.Server, cfg.Runtime.Listen, changes, cfg.Log)
	a.bound = bound.New(bound.Config{
		Reserve: a.Server.Reserve, Unclaim: a.unclaim, Warn: a.reports.Warn, Wake: a.Wake, Changes: changes,
		Log: cfg.Log,
	})
	if cfg.Platform.HasNetwork() {
		if err := a.machine.OpenNetwork(ctx); err != nil {
			return nil, fmt.Errorf("adopt the network of an earlier server: %w", err)
		}
	}
	return a, nil
}

// Run reconciles until ctx ends. What runs on the host stays as it is then.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { end(a.membership.follow(running)) })
	select {
	case <-running.Done():
	case <-a.inputs.Known():
		group.Go(func() { a.watchExits(running) })
		group.Go(func() { a.reports.Run(running) })
		group.Go(func() { a.fastPath.Watch(running, a.Wake) })
		group.Go(func() { a.speakers.Advertise(running, a.driver) })
		group.Go(func() { a.speakers.Reroute(running) })
		if a.cfg.Cluster != nil {
			group.Go(func() { a.speakers.Flood(running, a.tellLinkState) })
		}
		a.passes(running)
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// tellLinkState tells other hosts what is unreserved at links of this host's routers.
func (a *Agent) tellLinkState(ctx context.Context, name string, is slice.LinkState) error {
	err := a.cfg.Store.PutLinkState(ctx, a.cfg.Host, name, is)
	if errors.Is(err, store.ErrNotFound) { // the slice is gone
		err = nil
	}
	a.contact.Note(err)
	return err
}

// close lets go of the host, which stays as it is.
func (a *Agent) close() {
	a.sockets.Close()
	a.bound.Wait()
	a.speakers.Close()
	a.machine.Runtime.Close()
	a.unwalked.Close()
	if err := a.fastPath.Close(); err != nil {
		a.cfg.Log.Warn("close the fast path", "error", err)
	}
	if n := a.machine.Network(); n != nil {
		if err := n.Close(); err != nil {
			a.cfg.Log.Warn("close the network", "error", err)
		}
	}
}

// unclaim takes a port back that a sliver has bound.
func (a *Agent) unclaim(owner string, p slice.HostPort) error {
	if gateway := a.machine.Outside(); gateway != nil {
		return gateway.Unclaim(owner, p)
	}
	return nil
}

// Collectors gives the agent's metrics.
func (a *Agent) Collectors() []prometheus.Collector { return a.metrics.Collectors(a.Server) }

// Wake asks for a pass soon.
func (a *Agent) Wake() {
	select {
	case a.wakes <- struct{}{}:
	default:
	}
}

// replan stops the plan under way after the actions that have begun, and asks for a pass: what is wanted has changed.
func (a *Agent) replan() {
	a.mu.Lock()
	if a.cancel != nil {
		a.cancel()
	}
	a.mu.Unlock()
	a.Wake()
}

// Retry tries at once what failed of a slice, or of the host itself. A slice may have settled with nodes that do not
// run, as they are to be started in minutes: that is reported no longer, or a caller that asks would take it for the
// outcome.
func (a *Agent) Retry(ctx context.Context, name string) {
	if a.reopen(name) {
		a.reports.Write(context.WithoutCancel(ctx))
	}
	a.Wake()
}

// reopen forgets what failed of a slice or of the host, and reports whether anything had.
func (a *Agent) reopen(name string) bool {
	w, err := a.inputs.Slice(name)
	if err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ofSlice, ofHost := a.failures.Reset(w.Spec.ID), a.failures.Reset(plan.HostNetKey.Slice)
	if !ofSlice && !ofHost {
		return false
	}
	a.reports.Reopen(name)
	return true
}

// resetFailures forgets what failed of a slice of which another version is wanted: the cause may be mended.
func (a *Agent) resetFailures(id uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures.Reset(id)
}

// forget drops what is remembered of a slice that is gone.
func (a *Agent) forget(name string) {
	a.reports.Forget(name)
	a.Server.Forget(name)
}

func (a *Agent) isFenced() bool { return a.membership.fence.Closed() }
