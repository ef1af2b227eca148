package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pergola-net/pergola/host/agent/drive"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/agent/report"
	"github.com/pergola-net/pergola/host/agent/sockets"
	"github.com/pergola-net/pergola/host/agent/speakers"
	"github.com/pergola-net/pergola/host/agent/waits"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
)

// resync is how often there is a pass though nothing asked for one: it finds what no kernel announces.
const resync = 20 * time.Second

// passes makes one pass after the other until ctx ends.
func (a *Agent) passes(ctx context.Context) {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for ctx.Err() == nil {
		timer := time.NewTimer(a.pass(ctx))
		select {
		case <-ctx.Done():
		case <-a.wakes:
		case <-ticker.C:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass observes the host, plans, and acts on the difference. It returns when the next pass is due at the latest.
func (a *Agent) pass(ctx context.Context) time.Duration {
	// Before the inputs are read: a later change ends what is planned for them.
	running, cancel := a.interruptible(ctx)
	defer cancel()
	// Before the host is observed: a run of exec lines that has ended by then has left its results.
	boots := a.driver.Boots()
	seen, err := observe.Read(ctx, a.machine, a.driver.Areas())
	if err != nil {
		a.cfg.Log.Error("observe the host", "error", err)
		return time.Second
	}
	if err := a.driver.DeleteRemains(ctx, seen); err != nil {
		a.cfg.Log.Error("delete what is left of ports", "error", err)
		return time.Second
	}
	at, inputs := a.inputs.For(seen)
	a.syncFastPath(at, inputs, seen)
	a.sockets.Sync(sockets.Owners(inputs, seen))
	a.bound.Sync(ctx, at, inputs, seen)
	if a.cfg.Cluster != nil {
		a.driver.MarkFenced(at, inputs, seen)
		a.membership.underlay.Open(ctx, a.machine.Tunnels())
		at.Card = a.membership.underlay.Rate()
	} else {
		at.Address = a.membership.alone.Open(ctx, a.machine.Tunnels(), plan.HasUDPPorts(at, inputs))
	}
	want, broken := plan.New(at, inputs)
	a.Planned(want)
	waiting := waits.Of(want, seen, booting(boots), time.Now())
	actions, err := a.plan(report.Pass{At: at, Inputs: inputs, Want: want, Broken: broken, Seen: seen,
		Waits: waiting}, boots)
	if err != nil {
		a.cfg.Log.Error("plan", "error", err)
		return resync
	}
	a.reports.NoteGone(want, seen)
	if len(actions) == 0 {
		return waiting.Next(time.Now(), a.untilRetry(time.Now()))
	}
	a.act(running, cancel, &drive.Pass{Driver: a.driver, Want: want, Seen: seen, Running: running}, actions)
	return 0
}

// syncFastPath makes the data path forward as is wanted. Labels are there before the frames that get them. Of a slice
// that cannot be read, all goes on as it was.
func (a *Agent) syncFastPath(at plan.Place, inputs []plan.Input, seen *observe.Snapshot) {
	inputs = plan.Readable(inputs)
	path, want := a.machine.DataPath(), labels.Of(at, inputs, seen)
	signalled := speakers.Of(at, inputs, seen)
	a.labels.Add(path, want)
	a.speakers.Sync(path, signalled)
	a.speakers.Steer(signalled, &want)
	a.labels.Steer(path, want)
	routers := fastpath.Routers(inputs, seen, want.Routers)
	a.fastPath.Sync(path, routers)
	a.labels.Prune(want)
	a.speakers.Prune(signalled, want.Unknown)
	a.unwalked.Sync(path, routers)
}

// interruptible gives the context of a plan, which replan ends.
func (a *Agent) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	running, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel = cancel
	return running, cancel
}

// plan gives the actions that turn what is there into what is wanted, but for what is held back, and reports them. Both
// is done under one lock: what Retry lets be tried is in the plan and its report, or in neither.
func (a *Agent) plan(p report.Pass, boots []drive.Boot) (actions []reconcile.Action, err error) {
	p.Now, p.Failures, p.Boots = time.Now(), &a.failures, make(map[uint16]int)
	for _, b := range boots {
		if p.Now.Before(b.Until) {
			p.Boots[b.ID.Slice]++
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range p.Seen.Slivers {
		if s.State == sliver.Running {
			a.failures.Runs(id.Slice, id.Node, s.StartedAt, p.Now)
		}
	}
	a.failures.Retain(func(k reconcile.Key) bool { return p.Want.Has(k) || p.Seen.Whole[k] })
	p.Actions, err = reconcile.Plan(p.Want.Resources, p.Seen.Resources, func(k reconcile.Key) bool {
		// Of a slice that makes no sense, all stays as it is.
		return p.Broken[k.Slice] != nil || a.failures.Holds(k, p.Now) || p.Waits.Holds(k)
	})
	if err == nil {
		a.reports.Begin(p)
	}
	return p.Actions, err
}

// booting are the nodes whose exec lines still run.
func booting(boots []drive.Boot) map[sliver.ID]bool {
	all := make(map[sliver.ID]bool, len(boots))
	for _, b := range boots {
		all[b.ID] = true
	}
	return all
}

// untilRetry gives how long after now the next pass is due, when nothing is left to do.
func (a *Agent) untilRetry(now time.Time) time.Duration {
	a.mu.Lock()
	wait := a.failures.Wait(now, resync)
	a.mu.Unlock()
	for _, b := range a.driver.Boots() {
		if left := b.Until.Sub(now); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// act carries out a plan and remembers what failed. It ends early when all is done for one of the slices, so that this
// one's user need not wait for the others.
func (a *Agent) act(ctx context.Context, cancel func(), d *drive.Pass, actions []reconcile.Action) {
	defer a.metrics.Passed(time.Now())
	left := newCountdown(actions)
	reconcile.Run(ctx, actions, a.workers, func(_ context.Context, act reconcile.Action) error {
		// An action that has begun is carried through, or it would leave half-made things for nothing.
		err := d.Do(context.WithoutCancel(ctx), act)
		a.noteAction(act, err)
		if left.done(act) {
			cancel()
		}
		return err
	})
}

// noteAction remembers how an action ended: what failed is tried again, ever more slowly.
func (a *Agent) noteAction(act reconcile.Action, err error) {
	if errors.Is(err, reconcile.ErrSkipped) {
		return
	}
	a.metrics.Acted(act, err)
	if err != nil {
		a.cfg.Log.Warn("act", "do", act.Op.String(), "resource", plan.KindName(act.Key.Kind),
			"slice", act.Key.Slice, "name", act.Key.Name, "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.failures.Acted(act.Key, time.Now(), err)
	a.reports.Acted(act, before, err, &a.failures)
}

// watchExits asks for a pass whenever a first process has ended.
func (a *Agent) watchExits(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.machine.Runtime.Exits():
			a.noteExit(id)
			a.Wake()
		}
	}
}

// noteExit counts the end of a first process: one that ends again and again is started ever more slowly.
func (a *Agent) noteExit(id sliver.ID) {
	a.fastPath.Forget(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures.Exited(id.Slice, id.Node, time.Now())
}

// countdown counts the actions of a plan that have not ended, by slice.
type countdown struct {
	mu   sync.Mutex // guards left
	left map[uint16]int
}

func newCountdown(actions []reconcile.Action) *countdown {
	c := countdown{left: make(map[uint16]int)}
	for _, act := range actions {
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
