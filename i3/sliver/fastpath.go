// Package sliver is the fast path of a server that runs in a Pergola node with the packet program
// examples/programs/i3.c: it writes the program's memory and filters, by the control socket of the sliver.
//
// Ethernet addresses of neighbors and routes are the kernel's. Refresh reads them; packets for neighbors that the
// kernel has not resolved are punted, so that it does.
//
// The server never waits for an agent that is not there. A change that is not carried out within a moment turns the
// program off, by one store into its memory: all packets are punted. Refresh, which runs beside the server, then writes
// what the server wants by that time, and turns the program on again.
package sliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/sdk/message"
	"github.com/pergola-net/pergola/sdk/node"
)

// Program is a packet program's memory and filters: those of *node.Node.
type Program interface {
	// ChangeFilters deletes filters and inserts others, at once. An error that says so is message.Full.
	ChangeFilters(ctx context.Context, remove, insert []string) error
	ReplaceFilters(ctx context.Context, filters []string) error
	Filters(ctx context.Context) (node.Filters, error)
	// Memory is the memory that the program has now: the same one as before, while it is the same block.
	Memory(ctx context.Context) (Memory, error)
	// Look is at what the kernel knows of neighbors.
	Look(ctx context.Context) (layout.Node, error)
}

// Memory is that of a packet program, mapped.
type Memory interface {
	// At is element i, in place; nil where there is none.
	At(i int) []byte
	Close() error
}

const (
	grace    = 50 * time.Millisecond // for a request that a server waits for
	patience = 3 * time.Second       // for one of Refresh
	batch    = 200                   // filters of one request, which fit into a message
	trust    = 30                    // calls of Refresh, after which filters are compared
	turns    = 8                     // in which Refresh follows a server that changes filters meanwhile
)

// FastPath is a fast path. Its methods may be called concurrently.
type FastPath struct {
	program Program
	late    chan struct{}

	asking  sync.Mutex                   // held by who makes requests; taken before mu
	written map[ident.Key]layout.Filters // of the program. Of who makes requests

	mu      sync.Mutex // guards all below; never held during a request
	memory  Memory     // nil: the program has none that can be used
	node    layout.Node
	routes  chord.Routes
	actions map[ident.Prefix]fastpath.Action // that are wanted
	full    map[ident.Key]bool               // of which there is no filter, because there was no room
	changes int                              // of what is wanted
	behind  bool                             // filters are not what is wanted: it must stay off
	unknown bool                             // nor is it known what they are
	ring    []byte                           // as it was written last; nil: it is off
	active  int                              // element of the ring that was written last
	version uint64
	age     int // calls of Refresh since filters were compared
}

// New makes a fast path of a program. The program punts all until Replace and the Refresh after it.
func New(ctx context.Context, p Program) (*FastPath, error) {
	f := &FastPath{program: p, late: make(chan struct{}, 1), actions: map[ident.Prefix]fastpath.Action{},
		written: map[ident.Key]layout.Filters{}, full: map[ident.Key]bool{}}
	if err := f.lookAnew(ctx); err != nil {
		return nil, err
	}
	f.fallBehind(true)
	return f, nil
}

// Late tells that Refresh should be called soon.
func (f *FastPath) Late() <-chan struct{} { return f.late }

// fallBehind makes the program punt all until Refresh has written what is wanted.
func (f *FastPath) fallBehind(unknown bool) {
	f.turnOff()
	f.behind, f.unknown = true, f.unknown || unknown
	select {
	case f.late <- struct{}{}:
	default:
	}
}

// Limits says what the program can.
func (f *FastPath) Limits() fastpath.Limits { return layout.Limits }

// Replace sets everything. All is punted until Refresh has written it.
func (f *FastPath) Replace(r chord.Routes, filters []fastpath.Filter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.actions)
	clear(f.full)
	for _, one := range filters {
		f.actions[one.Prefix] = one.Action
	}
	f.routes = r
	f.changes++
	f.fallBehind(true)
	return nil
}

// SetRoutes replaces the table of the ring.
func (f *FastPath) SetRoutes(r chord.Routes) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes = r
	f.writeRing()
	return nil
}

// Set adds or replaces a filter.
func (f *FastPath) Set(one fastpath.Filter) error {
	return f.want(one.Prefix, func() { f.actions[one.Prefix] = one.Action })
}

// Delete takes a filter away.
func (f *FastPath) Delete(p ident.Prefix) error {
	return f.want(p, func() { delete(f.actions, p) })
}

// want changes what is wanted of a prefix, and writes it, if that takes but a moment. If there is no room, nothing has
// changed.
func (f *FastPath) want(p ident.Prefix, change func()) error {
	if !f.asking.TryLock() { // for Refresh, which sees that something has changed
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changes++
		change()
		f.fallBehind(false)
		return nil
	}
	defer f.asking.Unlock()
	f.mu.Lock()
	was, there := f.actions[p]
	f.changes++
	change()
	if f.behind || f.full[p.ID.Key()] {
		f.mu.Unlock()
		return nil
	}
	set := layout.Filters{}
	if action, ok := f.actions[p]; ok {
		f.node.Add(set, fastpath.Filter{Prefix: p, Action: action})
	}
	f.mu.Unlock()

	err := f.change(grace, []edit{f.editOf(p.ID.Key(), set, layout.Names(p))})
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, fastpath.ErrFull) {
		if delete(f.actions, p); there {
			f.actions[p] = was
		}
		return err
	}
	f.fallBehind(true)
	return nil
}

// Refresh follows the kernel's routes and neighbors, writes what a server wants and was not written, and takes the
// memory of a program that was loaded anew. Call it about once a second, and when Late says so. Now and then it
// compares the filters: those that were written at run time are lost where the program is loaded anew
// (docs/topology.md).
func (f *FastPath) Refresh() error {
	f.asking.Lock()
	defer f.asking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.lookAnew(ctx); err != nil {
		return err
	}
	if f.age++; f.age >= trust {
		f.age = 0
		if err := f.compare(); err != nil {
			return err
		}
	}
	for range turns {
		done, err := f.catchUp()
		if done || err != nil {
			return err
		}
	}
	return nil // behind, and late
}

// catchUp writes what is wanted. Not done: something else is wanted by now.
func (f *FastPath) catchUp() (done bool, err error) {
	f.mu.Lock()
	changes, unknown := f.changes, f.unknown
	wanted := f.wanted()
	f.mu.Unlock()
	if unknown {
		if err := f.clear(changes); err != nil {
			return false, err
		}
	}
	switch err := f.rewrite(wanted); {
	case errors.Is(err, fastpath.ErrFull):
		return false, nil // less is wanted now
	case err != nil:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fallBehind(true)
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes != changes {
		return false, nil
	}
	f.behind = false
	f.writeRing()
	return true, nil
}

// clear takes all filters away, in the name of what was wanted then.
func (f *FastPath) clear(changes int) error {
	clear(f.written)
	err := f.request(patience, func(ctx context.Context) error { return f.program.ReplaceFilters(ctx, nil) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.changes == changes {
		f.unknown = false
	}
	return err
}

// lookAnew reads what may have changed without the server: the kernel's tables, and which memory the program has.
func (f *FastPath) lookAnew(ctx context.Context) error {
	memory, err := f.program.Memory(ctx)
	if err != nil {
		return fmt.Errorf("look at the packet program's memory: %w", err)
	}
	seen, err := f.program.Look(ctx)
	if err != nil {
		return fmt.Errorf("look at routes and neighbors: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node = seen
	if memory == f.memory {
		return nil
	}
	return f.takeMemory(memory)
}

// Close makes the program punt all, and deletes its filters.
func (f *FastPath) Close() error {
	err := f.Replace(chord.Routes{}, nil)
	return errors.Join(err, f.Refresh())
}

// request makes a request, for so long.
func (f *FastPath) request(atMost time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	err := do(ctx)
	var refused *node.Error
	if errors.As(err, &refused) && refused.Code == message.Full {
		return fmt.Errorf("%w: %w", fastpath.ErrFull, err)
	}
	return err
}
