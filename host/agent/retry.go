package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
)

// noteAction remembers how an action ended: what failed is tried again, ever more slowly.
func (a *Agent) noteAction(act reconcile.Action, err error) {
	if errors.Is(err, reconcile.ErrSkipped) {
		return
	}
	a.metrics.acted(act, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	_, before := a.backoff.Failures(act.Key)
	if err != nil {
		a.cfg.Log.Warn("act", "do", act.Op.String(), "resource", plan.KindName(act.Key.Kind), "slice", act.Key.Slice, "name", act.Key.Name, "error", err)
		a.backoff.Fail(act.Key, time.Now(), err)
	} else {
		a.backoff.Forget(act.Key)
	}
	a.reportActionLocked(act, before, err)
}

// noteExit counts the end of a first process: one that ends again and again is started ever more slowly.
func (a *Agent) noteExit(id sliver.ID) {
	a.fast.forget(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.crashes.Fail(reconcile.Key{Kind: plan.KindSliver, Slice: id.Slice, Name: id.Node}, time.Now(), errExited)
}

var errExited = errors.New("its first process ended")

// soundAfter is how long a first process must live for its earlier ends to be forgotten.
const soundAfter = 10 * time.Second

func (a *Agent) forgetCrashesLocked(seen *sight, now time.Time) {
	for id, s := range seen.slivers {
		if s.State == sliver.Running && now.Sub(s.StartedAt) > soundAfter {
			a.crashes.Forget(reconcile.Key{Kind: plan.KindSliver, Slice: id.Slice, Name: id.Node})
		}
	}
}

func (a *Agent) untilRetry() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	wait := resync
	for _, b := range []*reconcile.Backoff{&a.backoff, &a.crashes} {
		if next, held := b.Next(now); held {
			wait = min(wait, next.Sub(now))
		}
	}
	if next, held := a.crashes.Next(now.Add(-probation)); held {
		wait = min(wait, next.Add(probation).Sub(now))
	}
	for b := range a.boots {
		if left := b.since.Add(bootPatience).Sub(now); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// forgiveLocked drops the remembered failures of a slice that its user changed: the cause may be mended. It reports
// whether there were any.
func (a *Agent) forgiveLocked(id uint16) (some bool) {
	for _, b := range []*reconcile.Backoff{&a.backoff, &a.crashes} {
		b.Retain(func(k reconcile.Key) bool {
			some = some || k.Slice == id
			return k.Slice != id
		})
	}
	return some
}

// Retry tries at once what failed of a slice, or of the host itself. A slice may have settled with nodes that do not
// run, as they are to be started in minutes: that is reported no longer, or who asked would take it for the outcome.
func (a *Agent) Retry(ctx context.Context, name string) {
	if a.forgive(name) {
		a.writeReports(context.WithoutCancel(ctx))
	}
	a.Nudge()
}

// forgive drops what failed of a slice or of the host, and reports whether anything had.
func (a *Agent) forgive(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.wishes[name]
	if w == nil {
		return false
	}
	ofSlice, ofHost := a.forgiveLocked(w.Spec.ID), a.forgiveLocked(plan.HostNetKey.Slice)
	if !ofSlice && !ofHost {
		return false
	}
	r := a.reportLocked(name)
	r.status.Slice, r.status.Settled, r.fresh = name, false, true
	r.status.Done, r.status.Total = 0, 0
	return true
}
