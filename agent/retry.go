package agent

import (
	"errors"
	"time"

	"github.com/pergola-net/pergola/agent/reconcile"
	"github.com/pergola-net/pergola/agent/sliver"
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
		a.cfg.Log.Warn("act", "do", act.Op.String(), "resource", kindNames[act.Key.Kind], "slice", act.Key.Slice, "name", act.Key.Name, "error", err)
		a.backoff.Fail(act.Key, time.Now(), err)
	} else {
		a.backoff.Forget(act.Key)
	}
	a.reportActionLocked(act, before, err)
}

// noteExit counts the end of a first process: one that ends again and again is started ever more slowly.
func (a *Agent) noteExit(id sliver.ID) {
	a.fast.remove(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.crashes.Fail(reconcile.Key{Kind: kindSliver, Slice: id.Slice, Name: id.Node}, time.Now(), errExited)
}

var errExited = errors.New("its first process ended")

// soundAfter is how long a first process must live for its earlier ends to be forgotten.
const soundAfter = 10 * time.Second

func (a *Agent) forgetCrashesLocked(seen *sight, now time.Time) {
	for id, s := range seen.slivers {
		if s.State == sliver.Running && now.Sub(s.StartedAt) > soundAfter {
			a.crashes.Forget(reconcile.Key{Kind: kindSliver, Slice: id.Slice, Name: id.Node})
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

// forgiveLocked drops the remembered failures of a slice that its user changed: the cause may be mended.
func (a *Agent) forgiveLocked(id uint16) {
	for _, b := range []*reconcile.Backoff{&a.backoff, &a.crashes} {
		b.Retain(func(k reconcile.Key) bool { return k.Slice != id })
	}
}

// Retry tries at once what failed of a slice, or of the host itself.
func (a *Agent) Retry(name string) {
	a.mu.Lock()
	if w := a.wishes[name]; w != nil {
		a.forgiveLocked(w.spec.ID)
		a.forgiveLocked(substrateKey.Slice)
	}
	a.mu.Unlock()
	a.Nudge()
}
