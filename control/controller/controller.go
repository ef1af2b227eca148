// Package controller decides what may run: it admits slices, places their nodes, allocates their IDs and shows what a
// change would do.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/wording"
)

// Host is the machine that is to hold a slice.
type Host interface {
	// Supports says, as an error, what the machine lacks for a slice, whatever other slices have of it: a kernel
	// module, an image. It may ask registries, which takes long. What is wrong at a place of the topology is a
	// topology.Diagnostics. Doubts, for a person, are what may be missing.
	Supports(context.Context, *slice.Slice) (doubts []string, err error)
	// Capacity gives the cores and the bytes of memory of the machine; 0: not known.
	Capacity() (cores float64, memory uint64)
	// HaveRoom says, as an error, what a host has not enough of for a slice's nodes that are on it: the machine, if
	// the host has no name, or another one. The slice's links have these shapes in place of their own, by
	// node:interface; nil: those that the store has.
	HaveRoom(ctx context.Context, on *hosts.Host, s *slice.Slice, shapes map[string]slice.Shape) error
}

// Blobs reports which archives are present.
type Blobs interface {
	Has(sum string) bool
}

// Controller carries out what callers ask for, by changing the store. It is safe for concurrent use.
type Controller struct {
	*Finder
	store   *store.Store
	host    Host
	blobs   Blobs
	events  *events.Bus
	cluster Cluster // nil on a machine that is in no cluster
	self    string  // this member of the cluster
	// holds stores what root of this machine gives to slices; may be nil.
	holds HoldStore
	grace time.Duration
	usage usageCache
	// placeMu is locked from reading the usage of hosts until a slice is written, so that what this member admits
	// is no conflict with itself. That two members do not give two slices the same is the store's matter
	// (store.NothingPlaced). Nothing is asked meanwhile but the store.
	placeMu sync.Mutex
}

// New makes a controller: of one machine, unless an option says more.
func New(s *store.Store, host Host, blobs Blobs, bus *events.Bus, options ...Option) *Controller {
	c := &Controller{Finder: NewFinder(s), store: s, host: host, blobs: blobs, events: bus, grace: Grace}
	for _, o := range options {
		o(c)
	}
	return c
}

// Caller is the user of a request.
type Caller struct {
	UID, GID uint32
	Root     bool
	Local    bool // the kernel of this machine says so; else a member of the cluster does
	// Host is the member on whose machine the user is, as that member says; empty: not known, or this one.
	Host string
}

// home is the host on which root itself asks; empty: somebody else asks, or root of a machine that is not known.
func (c Caller) home(self string) string {
	switch {
	case !c.Root:
		return ""
	case c.Local:
		return self
	}
	return c.Host
}

func faulty(ds topology.Diagnostics) *Refusal {
	r := refuse(Invalid, "the topology has %s", wording.Count(len(ds), "error"))
	for _, d := range ds {
		message := d.Message
		if d.Hint != "" {
			message += " (" + d.Hint + ")"
		}
		r.Faults = append(r.Faults, Fault{Location: d.Path, Message: message})
	}
	return r
}

// admit refuses what the caller may not have, and what was not sent.
func (c *Controller) admit(caller Caller, s *slice.Slice) error {
	if faults := privileged(s); len(faults) > 0 && !caller.Root {
		r := refuse(Forbidden, "network %s has access to the host, which only root may give: "+
			"use sudo, or leave out %s", s.Name, locations(faults))
		r.Faults = faults
		return r
	}
	for i := range s.Nodes {
		fs := s.Nodes[i].Rootfs
		if fs.Kind == slice.RootfsTar && !c.blobs.Has(fs.Ref) {
			return refuse(Invalid, "the root file system archive of node %s (SHA-256 %.12s…) is not on "+
				"the server: send it first", s.Nodes[i].Name, fs.Ref)
		}
	}
	return nil
}

// place finds out where the slice can run: in a cluster it gives each node a host, else this machine must have room. It
// returns from which hosts nodes were moved away, and notes for the user. home is the host whose root asks, on that
// host; empty: none's.
func (c *Controller) place(ctx context.Context, t *topology.Topology, prev, next *slice.Slice, generation int64,
	home string) (moves map[string]string, notes []string, err error) {
	if c.cluster == nil {
		if err := c.host.HaveRoom(ctx, &hosts.Host{}, next, nil); err != nil {
			return nil, nil, noRoom("network "+next.Name, err)
		}
		return nil, slices.Concat(ignoredPins(next), c.overcommitted(prev, next)), nil
	}
	p, err := c.placing(ctx, prev, next, generation)
	if err != nil {
		return nil, nil, err
	}
	p.top = t
	p.home = home
	if err := p.place(); err != nil {
		return nil, nil, err
	}
	if err := p.askHosts(); err != nil {
		return nil, nil, err
	}
	if err := c.canQueueOn(ctx, p.hosts, next); err != nil {
		return nil, nil, err
	}
	p.noteVolumes()
	return p.moves, p.notes, nil
}

// canQueueOn refuses a slice with queues of which its hosts have not enough. Placement counts those that are reserved,
// and not those of the pools of nodes without a reservation.
func (c *Controller) canQueueOn(ctx context.Context, all []store.HostState, s *slice.Slice) error {
	if len(s.Queueing(nil)) == 0 {
		return nil
	}
	for i := range all {
		here := func(n slice.Node) bool { return n.Kind != slice.Switch && n.Host == all[i].Name }
		if !slices.ContainsFunc(s.Nodes, here) {
			continue
		}
		if err := c.host.HaveRoom(ctx, &all[i].Host, s, nil); err != nil {
			return noRoom("network "+s.Name, err)
		}
	}
	return nil
}

// noRoom words that a host has not enough for a slice or a link, unless that is not known.
func noRoom(what string, err error) error {
	if errors.Is(err, store.ErrUnread) {
		return err
	}
	return refuse(Full, "%s: %v", what, err)
}

// Supports refuses a slice for which a machine lacks something. Doubts are what may be missing.
func Supports(ctx context.Context, host interface {
	Supports(ctx context.Context, s *slice.Slice) (doubts []string, err error)
}, s *slice.Slice) (doubts []string, err error) {
	doubts, err = host.Supports(ctx, s)
	if err != nil {
		var found topology.Diagnostics
		if errors.As(err, &found) && err.Error() == found.Error() { // and nothing else
			r := faulty(found)
			r.Reason, r.Message = Unsupported, fmt.Sprintf("this machine cannot run network %s", s.Name)
			return nil, r
		}
		return nil, refuse(Unsupported, "this machine cannot run network %s: %v", s.Name, err)
	}
	return doubts, nil
}

// placing gathers what the placement of a slice depends on.
func (c *Controller) placing(ctx context.Context, prev, next *slice.Slice, generation int64) (*placing, error) {
	p := &placing{prev: prev, next: next, generation: generation}
	var err error
	if p.hosts, err = c.hosts(ctx); err != nil {
		return nil, err
	}
	if p.used, err = c.usedByOthers(ctx, next.Name); err != nil {
		return nil, fmt.Errorf("sum what networks use of hosts: %w", err)
	}
	reports, err := c.store.Reports(ctx, next.Name)
	if err != nil {
		return nil, fmt.Errorf("read what hosts report of network %s: %w", next.Name, err)
	}
	p.readReports(reports)
	return p, nil
}

// privileged lists what in a slice gives access to the host.
func privileged(s *slice.Slice) (faults []Fault) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, h := range n.Holds() {
			faults = append(faults, Fault{Location: "nodes." + n.Name + "." + h.Field,
				Message: "only root may give access to " + h.String() + " of the host"})
		}
	}
	return faults
}

func locations(faults []Fault) string {
	const most = 5
	var names []string
	for i, f := range faults {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(faults)-most))
			break
		}
		names = append(names, f.Location)
	}
	return strings.Join(names, ", ")
}

// Delete asks for the removal of a slice.
func (c *Controller) Delete(ctx context.Context, name string) error {
	if err := c.store.DeleteSlice(ctx, name); err != nil {
		return c.explainMissing(ctx, name, err)
	}
	c.events.Publish(events.Event{Slice: name, Kind: events.SliceDeleting, Message: "is being removed"})
	return nil
}
