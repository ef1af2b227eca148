package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/slice"
)

// publishEvery bounds how often reports are written to the store while they change, which at hundreds of nodes is work
// for all who read them. That a slice has settled is told at once.
const publishEvery = 250 * time.Millisecond

// publish writes fresh reports to the store until ctx ends.
func (a *Agent) publish(ctx context.Context) {
	ticker := time.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.flushes:
		}
		a.writeReports(ctx)
		a.release(ctx)
	}
}

// news is what the store is to be told of a slice.
type news struct {
	slice.Status
	released bool // there is nothing of it here
	settles  bool // it is as wanted here, and was not
}

// writeReports writes what is fresh to the store now. What it does not take is written later.
func (a *Agent) writeReports(ctx context.Context) {
	a.writing.Lock()
	defer a.writing.Unlock()
	for _, st := range a.unannounced(time.Now()) {
		a.announceIfSettled(ctx, st)
	}
	for _, n := range a.freshReports() {
		var err error
		if n.released {
			err = a.cfg.Store.Release(ctx, a.cfg.Host, n.Slice)
		} else {
			err = a.cfg.Store.PutStatus(ctx, a.cfg.Host, n.Status)
		}
		a.contact.note(err)
		a.noteWritten(n, err)
		if n.settles && err == nil {
			a.announceIfSettled(ctx, &n.Status)
		}
	}
}

// announceIfSettled announces that a slice settled, if it was this host's report that made it so. Whether it was, the store
// has to answer: if it does not, it is asked again, unless something newer is told within a second.
func (a *Agent) announceIfSettled(ctx context.Context, st *slice.Status) {
	last, err := a.settledBy(ctx, a.cfg.Host, st.Slice)
	if err == nil && last {
		a.announceSettled(st)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.reports[st.Slice]
	switch {
	case r == nil: // the slice is gone
	case err != nil:
		r.unannounced, r.ask = st, time.Now().Add(retryStore)
	default:
		r.unannounced = nil
	}
}

// unannounced lists what settled and may have to be said, as far as it is time to ask again.
func (a *Agent) unannounced(now time.Time) (all []*slice.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reports {
		if r.unannounced != nil && !now.Before(r.ask) {
			all = append(all, r.unannounced)
		}
	}
	return all
}

func (a *Agent) freshReports() (all []news) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reports {
		if !r.fresh {
			continue
		}
		r.fresh = false
		switch {
		case !r.absent:
			n := news{Status: r.status, settles: r.settles}
			r.settles = false
			n.Nodes, n.Links = maps.Clone(n.Nodes), maps.Clone(n.Links)
			all = append(all, n)
		case !r.released:
			all = append(all, news{Status: slice.Status{Slice: r.status.Slice}, released: true})
		}
	}
	return all
}

// noteWritten remembers what the store has of a report.
func (a *Agent) noteWritten(n news, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.reports[n.Slice]
	switch {
	case r == nil || errors.Is(err, store.ErrNotFound): // the slice is gone
	case errors.Is(err, store.ErrWanted): // again: the next look finds that
	case err != nil:
		r.fresh, r.settles = true, r.settles || n.settles
	default:
		r.released = n.released
	}
}

// noteGone notes which slices that were to go have nothing here any more. The last one goes together with the substrate:
// who waits for it finds the machine as it was.
func (a *Agent) noteGone(want *plan.Wanted, seen *sight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = nil
	if _, substrate := seen.has[plan.HostNetKey]; substrate && !want.Has(plan.HostNetKey) {
		return
	}
	for name, id := range a.deleting {
		if !seen.slices[id] {
			a.gone = append(a.gone, name)
		}
	}
	if len(a.gone) > 0 {
		a.flush()
	}
}

// flush has what is new written to the store now.
func (a *Agent) flush() {
	select {
	case a.flushes <- struct{}{}:
	default:
	}
}

// release tells the store of slices that have nothing here any more.
func (a *Agent) release(ctx context.Context) {
	a.mu.Lock()
	gone := a.gone
	a.gone = nil
	a.mu.Unlock()
	for _, name := range gone {
		a.withdraw(ctx, name)
		err := a.cfg.Store.Release(ctx, a.cfg.Host, name)
		a.contact.note(err)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			a.cfg.Log.Debug("release", "slice", name, "error", err)
			a.Nudge() // the next look finds it again
			continue
		}
		a.mu.Lock()
		delete(a.deleting, name) // once: its name may be given again before the store tells that it was
		delete(a.reports, name)
		a.mu.Unlock()
	}
}
