// Package agent makes one host look as wanted.
//
//	store ──watch──> slices ── plan ───┐
//	                                   ├─ reconcile.Plan ── reconcile.Run ──> drive ──> sliver, wire, routing
//	kernel, runtime ──── observe ──────┘                        │
//	                                                            └──> status ──> store, events
//
// Package plan computes what a slice needs of a host; observe.go reads what is there; drive.go makes and unmakes each
// kind of resource; package reconcile decides what to do. The agent keeps nothing that it could not find out again: it
// may be killed at any instruction, and the next one goes on. Networks keep running meanwhile.
//
// Of a slice on several hosts, each holds its own part, with proxy ports for the rest. What an agent does as a member
// of a cluster is in member.go and membership.go; what it needs for that is package member.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
)

// Config is what an agent needs.
type Config struct {
	Host     string // this machine's name in the store
	StateDir string // runtime state, gone after a reboot
	LogDir   string // what nodes print
	BlobDir  string // archives of root file systems
	Runtime  string // OCI runtime; empty: crun, else runc
	Store    store.ForAgent
	Events   *events.Bus
	Log      *slog.Logger
	Cluster  *Cluster       // nil: this machine is alone
	Watchdog []string       // command that calls member.RunWatchdog, to which the state directory is added; empty: there is none
	Consents hosts.Consents // what slices may have of this machine, should it be in a cluster; nil: whatever they ask for
}

// Cluster is how this machine takes part in one.
type Cluster = hosts.Membership

// Agent reconciles one host. Its exported methods may be called from many goroutines.
type Agent struct {
	cfg       Config
	runtime   Runtime
	platform  Platform
	workers   int
	metrics   metrics
	fast      *fastPath
	register  func(context.Context) (member.Lease, error)                 // in a cluster
	settledBy func(ctx context.Context, host, slice string) (bool, error) // Store.SettledBy
	contact   contact
	fence     *member.Fence
	watchdog  *member.Watchdog
	survey    *member.Survey
	underlay  *member.Underlay
	host      *member.Host

	nudge   chan struct{} // something may be other than wanted: look
	flushes chan struct{} // the store is to be told of something now
	known   chan struct{} // closed when it is known what is wanted
	pids    sync.Map      // sliver.ID -> int: first processes of slivers that this process made

	learnOnce sync.Once // closes known

	writing sync.Mutex // held while reports are written, so that an older one never follows a newer; taken before mu

	mu       sync.Mutex                        // guards all below
	open     Network                           // nil: there is none
	wishes   map[string]*plan.Input            // by slice, what the store wants; without those to be removed
	deleting map[string]uint16                 // by slice, its id: to be removed
	gone     []string                          // of those, what the store is to be told of: nothing is left here
	peers    map[string]netip.Addr             // where the other hosts' ends of tunnels are
	pathMTUs map[string]int                    // bytes of an IP packet that pass to them, as far as hosts reported it
	prepared map[uint16]string                 // by slice's id, the digest of the area that this process made
	backoff  reconcile.Backoff                 // of actions that failed
	crashes  reconcile.Backoff                 // of slivers whose first process ended by itself
	reports  map[string]*report                // by slice
	tables   map[string]map[string]probe.Table // by slice and node: at the last look for convergence
	boots    map[*booting]bool                 // exec lines that run
	cancel   context.CancelFunc                // of the plan under way
}

// resync is how often the agent looks though nothing told it to: it finds what no kernel announces.
const resync = 20 * time.Second

// New checks that this machine can host slices with root's rights, and adopts what an earlier agent left.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	rt, err := sliver.New(ctx, sliver.Config{StateDir: cfg.StateDir, LogDir: cfg.LogDir, BlobDir: cfg.BlobDir, Runtime: cfg.Runtime})
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	var a *Agent
	p := rootPlatform{stateDir: cfg.StateDir, deleted: func() { a.Nudge() }}
	a = newAgent(cfg, rt, p)
	a.register, a.settledBy = a.registerHost, cfg.Store.SettledBy
	if err := a.adopt(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// newAgent makes an agent on a runtime and a platform.
func newAgent(cfg Config, rt Runtime, p Platform) *Agent {
	a := &Agent{
		cfg: cfg, runtime: rt, platform: p, workers: 3 * runtime.NumCPU(), metrics: newMetrics(), fast: newFastPath(cfg.Log),
		contact: contact{log: cfg.Log},
		nudge:   make(chan struct{}, 1), flushes: make(chan struct{}, 1), known: make(chan struct{}),
		wishes: make(map[string]*plan.Input), deleting: make(map[string]uint16), prepared: make(map[uint16]string),
		reports: make(map[string]*report), tables: make(map[string]map[string]probe.Table), boots: make(map[*booting]bool),
	}
	a.joinCluster()
	return a
}

// adopt opens the network that an earlier agent left, if there is one.
func (a *Agent) adopt(ctx context.Context) (err error) {
	if !a.platform.HasNetwork() {
		return nil
	}
	if a.open, err = a.platform.OpenNetwork(ctx); err != nil {
		return fmt.Errorf("adopt the network of an earlier server: %w", err)
	}
	return nil
}

// Run reconciles until ctx ends. What runs on the host stays as it is then.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { end(a.learn(running)) })
	select {
	case <-running.Done():
	case <-a.known:
		group.Go(func() { a.watchExits(running) })
		group.Go(func() { a.publish(running) })
		group.Go(func() { a.watchFastPath(running) })
		a.passes(running)
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// passes looks at the host again and again until ctx ends.
func (a *Agent) passes(ctx context.Context) {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for ctx.Err() == nil {
		again := a.pass(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-a.nudge:
		case <-ticker.C:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// close lets go of the host, which stays as it is.
func (a *Agent) close() {
	a.runtime.Close()
	if err := a.fast.close(); err != nil {
		a.cfg.Log.Warn("close the fast path", "error", err)
	}
	if n := a.network(); n != nil {
		if err := n.Close(); err != nil {
			a.cfg.Log.Warn("close the network", "error", err)
		}
	}
}

// Nudge asks for a look at the host soon.
func (a *Agent) Nudge() {
	select {
	case a.nudge <- struct{}{}:
	default:
	}
}

// interrupt stops the plan under way after the actions that have begun: what is wanted has changed.
func (a *Agent) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel != nil {
		a.cancel()
	}
}

// pass looks at the host once and acts on the difference. It returns when to look again at the latest.
func (a *Agent) pass(ctx context.Context) time.Duration {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	a.cancel = cancel // before the wishes are read: a later change ends what is planned for them
	a.mu.Unlock()
	seen, err := a.observe(ctx)
	if err != nil {
		a.cfg.Log.Error("look at the host", "error", err)
		return time.Second
	}
	at, wishes := a.wishesFor(seen)
	a.fast.follow(a.dataPath(), routersToMirror(wishes, seen))
	a.noteFences(at, wishes, seen)
	if a.cfg.Cluster != nil {
		a.underlay.Open(ctx, a.tunnels())
	}
	want, broken := plan.New(at, wishes)
	now := time.Now()
	a.mu.Lock()
	a.forgetCrashesLocked(seen, now)
	for _, b := range []*reconcile.Backoff{&a.backoff, &a.crashes} {
		b.Retain(func(k reconcile.Key) bool { return want.Has(k) || seen.has[k] })
	}
	plan, err := reconcile.Plan(want.Resources, seen.resources, func(k reconcile.Key) bool {
		// What is there of a slice that makes no sense stays as it is.
		return broken[k.Slice] != nil || a.backoff.Holds(k, now) || a.crashes.Holds(k, now)
	})
	if err == nil { // under the same lock: what Retry lets be tried is in both, the plan and its report, or in neither
		a.beginReportLocked(wishes, want, broken, seen, plan)
	}
	a.mu.Unlock()
	if err != nil {
		a.cfg.Log.Error("plan", "error", err)
		return resync
	}
	a.noteGone(want, seen)
	if len(plan) == 0 {
		return a.untilRetry()
	}
	a.act(running, driver{Agent: a, want: want, seen: seen, running: running, interrupt: cancel}, plan)
	return 0
}

// act carries out a plan and remembers what failed. It ends early when all is done for one of the slices, so that this
// one's user need not wait for the others.
func (a *Agent) act(ctx context.Context, d driver, plan []reconcile.Action) {
	defer a.metrics.passed(time.Now())
	left := newCountdown(plan)
	reconcile.Run(ctx, plan, a.workers, func(_ context.Context, act reconcile.Action) error {
		// An action that has begun is carried through, or it would leave half-made things for nothing.
		err := d.do(context.WithoutCancel(ctx), act)
		a.noteAction(act, err)
		if left.done(act) {
			d.interrupt()
		}
		return err
	})
}

// countdown counts the actions of a plan that have not ended, by slice.
type countdown struct {
	mu   sync.Mutex // guards left
	left map[uint16]int
}

func newCountdown(plan []reconcile.Action) *countdown {
	c := countdown{left: make(map[uint16]int)}
	for _, act := range plan {
		c.left[act.Key.Slice]++
	}
	return &c
}

// done counts an action and reports whether it was the last one of a slice.
func (c *countdown) done(act reconcile.Action) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[act.Key.Slice]--
	return act.Key.Slice != 0 && c.left[act.Key.Slice] == 0
}

// wishesFor gives what is wanted now, given what was seen: a node whose first process ended may be meant to stay so.
func (a *Agent) wishesFor(seen *sight) (at plan.Place, all []plan.Input) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at = a.placeLocked()
	for _, name := range slices.Sorted(maps.Keys(a.wishes)) {
		w := *a.wishes[name]
		w.Ended, w.Booted = make(map[string]bool), make(map[string]bool)
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			if !at.Owns(n) {
				continue
			}
			s, there := seen.slivers[sliver.ID{Slice: w.Spec.ID, Node: n.Name}]
			if there && s.State == sliver.Exited && plan.StaysEnded(n.Restart, s.ExitCode) {
				w.Ended[n.Name] = true
			}
			w.Booted[n.Name] = seen.has[reconcile.Key{Kind: plan.KindBoot, Slice: w.Spec.ID, Name: n.Name}]
		}
		all = append(all, w)
	}
	return at, all
}
