package agent

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/slice"
)

// loadAll reads everything that is wanted.
func (a *Agent) loadAll(ctx context.Context) error {
	_, err := a.load(ctx, store.Change{What: store.Resync})
	return err
}

// load reads again what a change is about, and reports whether that may change what is wanted here.
func (a *Agent) load(ctx context.Context, c store.Change) (news bool, err error) {
	var names []string
	switch c.What {
	case store.SpecChanged, store.OverridesChanged, store.StatusChanged, store.Gone:
		names = []string{c.Slice}
	case store.HostsChanged:
		if news, err = a.loadHosts(ctx); err != nil || !news {
			return false, err
		}
		names = a.awaiting() // a host that is no more need not be awaited
	case store.Resync:
		if _, err := a.loadHosts(ctx); err != nil {
			return false, err
		}
		if names, err = a.allNames(ctx); err != nil {
			return false, err
		}
	}
	for _, name := range names {
		if err := a.loadSlice(ctx, name); err != nil {
			return true, err
		}
	}
	return true, nil
}

// allNames lists the slices of the store, and those that are known here: what is gone from the store is in neither list
// there.
func (a *Agent) allNames(ctx context.Context) (names []string, err error) {
	records, err := a.cfg.Store.Slices(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		names = append(names, r.Name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(a.wishes)), maps.Keys(a.deleting))
	slices.Sort(names)
	return slices.Compact(names), nil
}

// awaiting lists the slices with nodes that await another host.
func (a *Agent) awaiting() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.wishes {
		if len(w.Awaited) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (a *Agent) loadSlice(ctx context.Context, name string) error {
	spec, record, err := a.cfg.Store.Slice(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		a.forget(name)
		a.withdraw(ctx, name)
		return nil
	}
	next := &plan.Input{Spec: spec}
	if err == nil && !record.Deleting {
		next.Overrides, err = a.cfg.Store.Overrides(ctx, name)
	}
	if err == nil && !record.Deleting {
		next.Awaited, err = a.awaitedBy(ctx, spec)
	}
	corrupt := errors.Is(err, store.ErrCorrupt)
	if err != nil && !corrupt && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgiveLocked(record.ID)
	if record.Deleting {
		delete(a.wishes, name)
		a.deleting[name] = record.ID
		return nil
	}
	delete(a.deleting, name)
	if corrupt {
		spec = &slice.Slice{Name: name, ID: record.ID, Generation: record.Generation}
		next = &plan.Input{Spec: spec, Corrupt: err}
	}
	a.wishes[name] = next
	return nil
}

func (a *Agent) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wishes, name)
	delete(a.deleting, name)
	delete(a.reports, name)
	delete(a.tables, name)
}
