// Package inputs is what one host is to have, as the store says: the slices and what users changed of them, and the
// host's place among the others. It reads them when the store tells that they changed, and gives them to package plan.
package inputs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Config is what Inputs needs.
type Config struct {
	Host    string // this machine's name in the store
	Cluster *hosts.Membership
	Store   Store
	Contact *store.Contact   // is told of each answer of the store, and of each that did not come
	Terms   hosts.TermsStore // nil: slices may have whatever they ask for
	Log     *slog.Logger

	// Reservable is what nodes can reserve of this machine, beside cores and memory.
	Reservable slice.Reserve

	Fenced  func() bool       // nodes that may start elsewhere must not run here
	Changes func(id uint16)   // called before another version of a slice is taken
	Gone    func(name string) // called after the store told that there is no such slice any more
}

// Store is the part of a store.ForAgent that is read.
type Store interface {
	Hosts(ctx context.Context) ([]store.HostState, error)
	Slices(ctx context.Context) ([]store.Record, error)
	Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error)
	Overrides(ctx context.Context, name string) (slice.Overrides, error)
	Generations(ctx context.Context, name string) (map[string]int64, error)
	LinkStates(ctx context.Context, name string) (map[string]slice.LinkState, error)
}

// Inputs is what a host is to have. Its methods may be called from many goroutines.
type Inputs struct {
	cfg Config

	known     chan struct{} // closed when it is known what is wanted
	knownOnce sync.Once     // closes known

	mu       sync.Mutex             // guards all below
	wanted   map[string]*plan.Input // by slice; without those to be removed
	deleting map[string]uint16      // by slice, its id: to be removed
	peers    map[string]netip.Addr  // where the other hosts' ends of tunnels are
	pathMTUs map[string]int         // bytes of an IP packet that pass to them, as far as hosts reported it
}

// New gives Inputs that know of nothing yet.
func New(cfg Config) *Inputs {
	return &Inputs{
		cfg: cfg, known: make(chan struct{}), wanted: make(map[string]*plan.Input),
		deleting: make(map[string]uint16),
	}
}

// Known is closed when it is known what is wanted: before, nothing seems to be.
func (i *Inputs) Known() <-chan struct{} { return i.known }

// MarkKnown says that all that is wanted has been read.
func (i *Inputs) MarkKnown() { i.knownOnce.Do(func() { close(i.known) }) }

// Slice gives a slice that has a part here, or may have one.
func (i *Inputs) Slice(name string) (*plan.Input, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.wanted[name]
	if w == nil {
		return nil, fmt.Errorf("network %s is not on this host", name)
	}
	return w, nil
}

// All gives all slices but those that are to be removed.
func (i *Inputs) All() []*plan.Input {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Values(i.wanted))
}

// Deleting gives the ids of the slices that are to be removed, by name.
func (i *Inputs) Deleting() map[string]uint16 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.deleting)
}

// Removed forgets a slice that was to be removed: nothing of it is left here.
func (i *Inputs) Removed(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.deleting, name)
}

// For gives the inputs of a plan, given what was observed: a node whose first process ended may be meant to stay so.
// The slices are in the order of their names.
func (i *Inputs) For(seen *observe.Snapshot) (at plan.Place, all []plan.Input) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at = i.placeLocked()
	for _, name := range slices.Sorted(maps.Keys(i.wanted)) {
		w := *i.wanted[name]
		w.Ended, w.Booted = make(map[string]bool), make(map[string]bool)
		for j := range w.Spec.Nodes {
			n := &w.Spec.Nodes[j]
			if !at.Owns(n) {
				continue
			}
			s, there := seen.Slivers[sliver.ID{Slice: w.Spec.ID, Node: n.Name}]
			if there && s.State == sliver.Exited && plan.StaysEnded(n.Restart, s.ExitCode) {
				w.Ended[n.Name] = true
			}
			w.Booted[n.Name] = seen.Whole[reconcile.Key{
				Kind: plan.KindBoot, Slice: w.Spec.ID, Name: n.Name,
			}]
		}
		all = append(all, w)
	}
	plan.Admit(at, all)
	return at, all
}

// Place says what this host is among the others.
func (i *Inputs) Place() plan.Place {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.placeLocked()
}

func (i *Inputs) placeLocked() plan.Place {
	p := plan.Place{Host: i.cfg.Host, Reservable: i.cfg.Reservable}
	if terms := i.Terms(); terms != nil {
		p.Allows = terms.Allowance
	}
	if c := i.cfg.Cluster; c != nil {
		p.Joined, p.Address, p.Peers, p.PathMTUs = c.Joined, c.Address.Unmap(), i.peers, i.pathMTUs
		p.Fenced, p.Terms = i.cfg.Fenced(), i.Terms()
	}
	return p
}

// Terms are what the machine's root grants to slices; nil: whatever they ask for.
func (i *Inputs) Terms() *hosts.Terms {
	if i.cfg.Terms == nil {
		return nil
	}
	return i.cfg.Terms.Terms()
}

// ForgetHolds forgets the holds on this machine that a slice was given that is deleted.
func (i *Inputs) ForgetHolds(ctx context.Context, name string) {
	if i.cfg.Terms == nil {
		return
	}
	if err := i.cfg.Terms.Forget(ctx, name); err != nil {
		i.cfg.Log.Warn("forget what a network was granted of this machine", "slice", name, "error", err)
	}
}
