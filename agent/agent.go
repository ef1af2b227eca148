// Package agent makes one host look as wanted.
//
//	store ──watch──> wishes ── wants ──┐
//	                                   ├─ reconcile.Plan ── reconcile.Run ──> drive ──> sliver, wire, routing
//	kernel, runtime ──── observe ──────┘                        │
//	                                                            └──> status ──> store, events
//
// wants.go says what a slice needs of a host, observe.go what is there, drive.go how each resource is made and unmade;
// package reconcile decides what to do. The agent keeps nothing that it could not find out again: it may be killed at any
// instruction, and the next one goes on. The networks do not notice.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/agent/probe"
	"github.com/pergola-net/pergola/agent/reconcile"
	"github.com/pergola-net/pergola/agent/sliver"
	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/events"
	"github.com/pergola-net/pergola/slice"
	"github.com/pergola-net/pergola/store"
)

// Config is what an agent needs.
type Config struct {
	Host     string // this machine's name in the store
	StateDir string // runtime state, gone after a reboot
	LogDir   string // what nodes print
	BlobDir  string // archives of root file systems
	Runtime  string // OCI runtime; empty: crun, else runc
	Store    *store.Store
	Events   *events.Bus
	Log      *slog.Logger
}

// Agent reconciles one host. Its exported methods may be called from many goroutines.
type Agent struct {
	cfg     Config
	runtime *sliver.Runtime
	workers int
	metrics metrics
	fast    *fastPath

	nudge chan struct{} // something may be other than wanted: look
	pids  sync.Map      // sliver.ID -> int: first processes of slivers that this process made

	telling sync.Mutex // held while reports are written, so that an older one never follows a newer; taken before mu

	mu        sync.Mutex // guards all below
	substrate *wire.Substrate
	wishes    map[string]*wish                  // by slice, what the store wants; going slices are not among them
	going     map[string]uint16                 // by slice, its id: to be removed
	prepared  map[uint16]string                 // by slice's id, the digest of the area that this process made
	backoff   reconcile.Backoff                 // of actions that failed
	crashes   reconcile.Backoff                 // of slivers whose first process ended by itself
	reports   map[string]*report                // by slice
	tables    map[string]map[string]probe.Table // by slice and node: at the last look for convergence
	boots     map[*booting]bool                 // exec lines that run
	cancel    context.CancelFunc                // of the plan under way
}

// resync is how often the agent looks though nothing told it to: it finds what no kernel announces.
const resync = 20 * time.Second

// New checks that this machine can host slices and adopts what an earlier agent left.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	rt, err := sliver.New(ctx, sliver.Config{StateDir: cfg.StateDir, LogDir: cfg.LogDir, BlobDir: cfg.BlobDir, Runtime: cfg.Runtime})
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a := &Agent{
		cfg: cfg, runtime: rt, workers: 3 * runtime.NumCPU(), metrics: newMetrics(), fast: newFastPath(cfg.Log),
		nudge:  make(chan struct{}, 1),
		wishes: make(map[string]*wish), going: make(map[string]uint16), prepared: make(map[uint16]string), reports: make(map[string]*report),
		tables: make(map[string]map[string]probe.Table), boots: make(map[*booting]bool),
	}
	if wire.Present(cfg.StateDir) {
		if a.substrate, err = wire.Open(ctx, wire.Config{StateDir: cfg.StateDir, Deleted: a.Nudge}); err != nil {
			return nil, fmt.Errorf("adopt the substrate of an earlier server: %w", err)
		}
	}
	return a, nil
}

// Run reconciles until ctx ends. What runs on the host stays as it is then.
func (a *Agent) Run(ctx context.Context) error {
	changes, err := a.cfg.Store.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the store: %w", err)
	}
	if err := a.loadAll(ctx); err != nil {
		return err
	}
	defer a.close()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { a.listen(ctx, changes) })
	group.Go(func() { a.publish(ctx) })
	group.Go(func() { a.watchFastPath(ctx) })
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
	return nil
}

// close lets go of the host, which stays as it is.
func (a *Agent) close() {
	a.runtime.Close()
	if err := a.fast.close(); err != nil {
		a.cfg.Log.Warn("close the fast path", "error", err)
	}
	if s := a.network(); s != nil {
		if err := s.Close(); err != nil {
			a.cfg.Log.Warn("close the substrate", "error", err)
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

// listen turns news from the store and from the host into nudges.
func (a *Agent) listen(ctx context.Context, changes <-chan store.Change) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.runtime.Exits():
			a.noteExit(id)
		case c, open := <-changes:
			if !open {
				return
			}
			if c.What == store.StatusChanged {
				continue
			}
			if err := a.load(ctx, c); err != nil {
				a.cfg.Log.Error("read what is wanted", "slice", c.Slice, "error", err)
			}
			a.interrupt()
		}
		a.Nudge()
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
	wishes := a.wishesFor(seen)
	a.fast.follow(a.network(), routersToMirror(wishes, seen))
	want, broken := wants(wishes)
	now := time.Now()
	a.mu.Lock()
	a.forgetCrashesLocked(seen, now)
	for _, b := range []*reconcile.Backoff{&a.backoff, &a.crashes} {
		b.Retain(func(k reconcile.Key) bool { return want.has(k) || seen.has[k] })
	}
	plan, err := reconcile.Plan(want.resources, seen.resources, func(k reconcile.Key) bool {
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
	a.release(ctx, seen)
	if len(plan) == 0 {
		return a.untilRetry()
	}
	a.act(running, driver{Agent: a, want: want, seen: seen, running: running, interrupt: cancel}, plan)
	return 0
}

// act carries out a plan and remembers what failed. It ends early when all is done for one of the slices, so that this one's user
// need not wait for the others.
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
func (a *Agent) wishesFor(seen *sight) (all []wish) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.wishes)) {
		w := *a.wishes[name]
		w.left, w.booted = make(map[string]bool), make(map[string]bool)
		for i := range w.spec.Nodes {
			n := &w.spec.Nodes[i]
			s, there := seen.slivers[sliver.ID{Slice: w.spec.ID, Node: n.Name}]
			if there && s.State == sliver.Exited && isLeft(n.Restart, s.ExitCode) {
				w.left[n.Name] = true
			}
			w.booted[n.Name] = seen.has[reconcile.Key{Kind: kindBoot, Slice: w.spec.ID, Name: n.Name}]
		}
		all = append(all, w)
	}
	return all
}

// isLeft reports whether a restart policy leaves a node whose first process ended with the given status.
func isLeft(policy slice.Restart, code int) bool {
	return policy == slice.RestartNever || policy == slice.RestartOnFailure && code == 0
}

// loadAll reads everything that is wanted.
func (a *Agent) loadAll(ctx context.Context) error {
	return a.load(ctx, store.Change{What: store.Resync})
}

// load reads again what a change is about.
func (a *Agent) load(ctx context.Context, c store.Change) error {
	names := []string{c.Slice}
	if c.What == store.Resync {
		records, err := a.cfg.Store.Slices(ctx)
		if err != nil {
			return err
		}
		names = names[:0]
		for _, r := range records {
			names = append(names, r.Name)
		}
		a.mu.Lock() // what is gone from the store is in neither list there
		names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(a.wishes)), maps.Keys(a.going))
		a.mu.Unlock()
	}
	for _, name := range names {
		if err := a.loadSlice(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) loadSlice(ctx context.Context, name string) error {
	spec, record, err := a.cfg.Store.Slice(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.wishes, name)
		delete(a.going, name)
		delete(a.reports, name)
		delete(a.tables, name)
		return nil
	}
	var o slice.Overrides
	if err == nil && !record.Going {
		o, err = a.cfg.Store.Overrides(ctx, name)
	}
	corrupt := errors.Is(err, store.ErrCorrupt)
	if err != nil && !corrupt && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgiveLocked(record.ID)
	if record.Going {
		delete(a.wishes, name)
		a.going[name] = record.ID
		return nil
	}
	delete(a.going, name)
	if corrupt {
		spec = &slice.Slice{Name: name, ID: record.ID, Generation: record.Generation}
		a.wishes[name] = &wish{spec: spec, corrupt: err}
		return nil
	}
	a.wishes[name] = &wish{spec: spec, overrides: o}
	return nil
}

// release tells the store of slices that were to go and of which nothing is left here. The last one goes together with the
// substrate: who waits for it finds the machine as it was.
func (a *Agent) release(ctx context.Context, seen *sight) {
	a.mu.Lock()
	if _, substrate := seen.has[substrateKey]; substrate && len(a.wishes) == 0 {
		a.mu.Unlock()
		return
	}
	var gone []string
	for name, id := range a.going {
		if !seen.slices[id] {
			gone = append(gone, name)
		}
	}
	a.mu.Unlock()
	for _, name := range gone {
		if err := a.cfg.Store.Release(ctx, a.cfg.Host, name); err != nil && !errors.Is(err, store.ErrNotFound) {
			a.cfg.Log.Error("release", "slice", name, "error", err)
			continue
		}
		a.mu.Lock()
		delete(a.going, name) // once: its name may be given again before the store tells that it was
		a.mu.Unlock()
	}
}
