package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/slice"
)

// publishEvery bounds how often reports are written to the store while they change, which at hundreds of nodes is work
// for all that read them. That a slice has settled is told at once.
const publishEvery = 250 * time.Millisecond

// Run writes fresh reports to the store until ctx ends.
func (r *Reports) Run(ctx context.Context) {
	ticker := time.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.flushes:
		}
		r.Write(ctx)
		r.Release(ctx)
	}
}

// flush has what is new written to the store now.
func (r *Reports) flush() {
	select {
	case r.flushes <- struct{}{}:
	default:
	}
}

// news is what the store is to be told of a slice.
type news struct {
	slice.Status
	released bool // there is nothing of it here
	settles  bool // it is as wanted here, and was not
}

// Write writes what is fresh to the store. What it does not take is written later.
func (r *Reports) Write(ctx context.Context) {
	r.writing.Lock()
	defer r.writing.Unlock()
	for _, st := range r.unannounced(time.Now()) {
		r.announceIfSettled(ctx, st)
	}
	for _, n := range r.fresh() {
		var err error
		if n.released {
			err = r.cfg.Store.Release(ctx, r.cfg.Host, n.Slice)
		} else {
			err = r.cfg.Store.PutStatus(ctx, r.cfg.Host, n.Status)
		}
		r.cfg.Contact.Note(err)
		r.noteWritten(n, err)
		if n.settles && err == nil {
			r.announceIfSettled(ctx, &n.Status)
		}
	}
}

// announceIfSettled announces that a slice settled, if it was this host's report that made it so. The store has to
// answer whether it was: if it does not, it is asked again, unless something newer is told within a second.
func (r *Reports) announceIfSettled(ctx context.Context, st *slice.Status) {
	last, err := r.cfg.Store.SettledBy(ctx, r.cfg.Host, st.Slice)
	if err == nil && last {
		r.announceSettled(st)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.reports[st.Slice]
	switch {
	case one == nil: // the slice is gone
	case err != nil:
		one.unannounced, one.ask = st, time.Now().Add(inputs.RetryStore)
	default:
		one.unannounced = nil
	}
}

func (r *Reports) announceSettled(st *slice.Status) {
	message := fmt.Sprintf("generation %d is as wanted", st.Generation)
	r.publish(events.Event{Slice: st.Slice, Kind: events.SliceSettled, Message: message})
}

// unannounced lists what settled and may have to be announced, as far as it is time to ask again.
func (r *Reports) unannounced(now time.Time) (all []*slice.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.reports {
		if one.unannounced != nil && !now.Before(one.ask) {
			all = append(all, one.unannounced)
		}
	}
	return all
}

func (r *Reports) fresh() (all []news) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.reports {
		if !one.fresh {
			continue
		}
		one.fresh = false
		switch {
		case !one.absent:
			n := news{Status: one.status, settles: one.settles}
			one.settles = false
			n.Nodes, n.Links = maps.Clone(n.Nodes), maps.Clone(n.Links)
			all = append(all, n)
		case !one.released:
			all = append(all, news{Status: slice.Status{Slice: one.status.Slice}, released: true})
		}
	}
	return all
}

// noteWritten notes what the store has of a report.
func (r *Reports) noteWritten(n news, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.reports[n.Slice]
	switch {
	case one == nil || errors.Is(err, store.ErrNotFound): // the slice is gone
	case errors.Is(err, store.ErrWanted): // again: the next pass finds that
	case err != nil:
		one.fresh, one.settles = true, one.settles || n.settles
	default:
		one.released = n.released
	}
}

// NoteGone notes which slices that were to be removed have nothing here any more. The last one is released together
// with the network of all slices: whoever waits for it finds the machine as it was.
func (r *Reports) NoteGone(want *plan.Wanted, seen *observe.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = nil
	if _, there := seen.Whole[plan.HostNetKey]; there && !want.Has(plan.HostNetKey) {
		return
	}
	for name, id := range r.cfg.Inputs.Deleting() {
		if !seen.Slices[id] {
			r.gone = append(r.gone, name)
		}
	}
	if len(r.gone) > 0 {
		r.flush()
	}
}

// Release tells the store of slices that have nothing here any more.
func (r *Reports) Release(ctx context.Context) {
	r.mu.Lock()
	gone := r.gone
	r.gone = nil
	r.mu.Unlock()
	for _, name := range gone {
		r.cfg.Inputs.ForgetHolds(ctx, name)
		err := r.cfg.Store.Release(ctx, r.cfg.Host, name)
		r.cfg.Contact.Note(err)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			r.cfg.Log.Debug("release", "slice", name, "error", err)
			r.cfg.Wake() // the next pass finds it again
			continue
		}
		r.forgetRemoved(name)
	}
}

// forgetRemoved drops a slice that was removed, at once: its name may be given again before the store tells that it was
// removed.
func (r *Reports) forgetRemoved(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Inputs.Removed(name)
	delete(r.reports, name)
}
