package inputs

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// LoadAll reads everything that is wanted.
func (i *Inputs) LoadAll(ctx context.Context) error {
	_, err := i.Load(ctx, store.Change{What: store.Resync})
	return err
}

// Load reads again what a change is about, and reports whether that may change what is wanted here.
func (i *Inputs) Load(ctx context.Context, c store.Change) (news bool, err error) {
	var names []string
	switch c.What {
	case store.SpecChanged, store.OverridesChanged, store.StatusChanged, store.Gone:
		names = []string{c.Slice}
	case store.LinkStateChanged: // the next pass that asks for an LSP needs it, and none before
		return false, i.loadLinkState(ctx, c.Slice)
	case store.HostsChanged:
		if news, err = i.loadHosts(ctx); err != nil || !news {
			return false, err
		}
		names = i.awaiting() // a host that is no more need not be awaited
	case store.Resync:
		if _, err := i.loadHosts(ctx); err != nil {
			return false, err
		}
		if names, err = i.allNames(ctx); err != nil {
			return false, err
		}
	}
	for _, name := range names {
		if err := i.loadSlice(ctx, name); err != nil {
			return true, err
		}
	}
	return true, nil
}

// Stored gives the slices that may have a part on a host as the store has them at this moment, with as much of each as
// says what it takes of the host. What All gives may be a little older.
func (i *Inputs) Stored(ctx context.Context, host string) (all []plan.Input, err error) {
	records, err := i.cfg.Store.Slices(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Deleting || r.Corrupt || len(r.Hosts) > 0 && !slices.Contains(r.Hosts, host) {
			continue
		}
		one, err := i.stored(ctx, r)
		switch {
		case err == nil:
			all = append(all, one)
		case !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrCorrupt):
			return nil, err
		}
	}
	return all, nil
}

// stored reads a slice, and what users changed of its links if it has queues: only of these it counts.
func (i *Inputs) stored(ctx context.Context, r store.Record) (one plan.Input, err error) {
	i.mu.Lock()
	known := i.wanted[r.Name]
	i.mu.Unlock()
	if known != nil && known.Corrupt == nil && known.Spec.ID == r.ID && known.Spec.Generation == r.Generation {
		one.Spec = known.Spec
	} else if one.Spec, r, err = i.cfg.Store.Slice(ctx, r.Name); err != nil {
		return one, err
	} else if r.Deleting {
		return one, store.ErrNotFound
	}
	if len(one.Spec.Queueing(nil)) > 0 {
		one.Overrides, err = i.cfg.Store.Overrides(ctx, r.Name)
	}
	return one, err
}

// allNames lists the slices of the store, and those that are known here: one that is gone from the store is in the
// second list alone.
func (i *Inputs) allNames(ctx context.Context) (names []string, err error) {
	records, err := i.cfg.Store.Slices(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		names = append(names, r.Name)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(i.wanted)), maps.Keys(i.deleting))
	slices.Sort(names)
	return slices.Compact(names), nil
}

// awaiting lists the slices with nodes that await another host.
func (i *Inputs) awaiting() (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, w := range i.wanted {
		if len(w.Awaited) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// awaits reports whether a node of a slice awaits another host.
func (i *Inputs) awaits(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.wanted[name]
	return w != nil && len(w.Awaited) > 0
}

func (i *Inputs) loadSlice(ctx context.Context, name string) error {
	spec, record, err := i.cfg.Store.Slice(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		i.forget(name)
		i.cfg.Gone(name)
		i.ForgetHolds(ctx, name)
		return nil
	}
	next := &plan.Input{Spec: spec}
	if err == nil && !record.Deleting {
		next.Overrides, err = i.cfg.Store.Overrides(ctx, name)
	}
	if err == nil && !record.Deleting {
		next.Awaited, err = i.awaitedBy(ctx, spec)
	}
	if err == nil && !record.Deleting {
		next.LinkState, err = i.linkStateOf(ctx, spec)
	}
	corrupt := errors.Is(err, store.ErrCorrupt)
	if err != nil && !corrupt && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if corrupt {
		spec = &slice.Slice{Name: name, ID: record.ID, Generation: record.Generation}
		next = &plan.Input{Spec: spec, Corrupt: err}
	}
	i.cfg.Changes(record.ID)
	i.mu.Lock()
	defer i.mu.Unlock()
	if was := i.wanted[name]; corrupt && was != nil && was.Spec.ID == record.ID {
		if next.Last = was; was.Corrupt != nil {
			next.Last = was.Last
		}
	}
	if record.Deleting {
		delete(i.wanted, name)
		i.deleting[name] = record.ID
		return nil
	}
	delete(i.deleting, name)
	i.wanted[name] = next
	return nil
}

func (i *Inputs) forget(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.wanted, name)
	delete(i.deleting, name)
}

// awaitedBy gives the nodes that were moved here from hosts that may still run them, each with such a host.
func (i *Inputs) awaitedBy(ctx context.Context, s *slice.Slice) (map[string]string, error) {
	if i.cfg.Cluster == nil {
		return nil, nil
	}
	at := i.Place()
	var generations map[string]int64
	awaited := make(map[string]string)
	for j := range s.Nodes {
		n := &s.Nodes[j]
		if len(n.Left) == 0 || !at.Owns(n) {
			continue
		}
		if generations == nil {
			var err error
			if generations, err = i.cfg.Store.Generations(ctx, s.Name); err != nil {
				return nil, err
			}
		}
		host := n.Awaits(func(host string) (int64, bool) {
			_, exists := at.Peers[host] // this host is not among them
			return generations[host], exists
		})
		if host != "" {
			awaited[n.Name] = host
		}
	}
	return awaited, nil
}

// loadHosts reads where the other hosts' ends of tunnels are, and reports whether that is news.
func (i *Inputs) loadHosts(ctx context.Context) (news bool, err error) {
	if i.cfg.Cluster == nil {
		return false, nil
	}
	all, err := i.cfg.Store.Hosts(ctx)
	if err != nil {
		return false, err
	}
	peers := make(map[string]netip.Addr, len(all))
	described := make([]hosts.Host, len(all))
	for j, h := range all {
		described[j] = h.Host
		if h.Name != i.cfg.Host {
			peers[h.Name] = h.Address.Unmap()
		}
	}
	mtus := plan.PathMTUs(i.cfg.Host, described)
	i.mu.Lock()
	defer i.mu.Unlock()
	news = !maps.Equal(i.peers, peers) || !maps.Equal(i.pathMTUs, mtus)
	i.peers, i.pathMTUs = peers, mtus
	return news, nil
}
