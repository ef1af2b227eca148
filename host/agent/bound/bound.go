// Package bound reserves the ports of the machine that processes of slivers have bound, and releases those that they
// have bound no longer: by the way of requests of slivers, so that who has which port, and who may have it, is decided
// in one place. What was observed is compared with what the store has, in each pass: nothing is kept but what was
// refused.
package bound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// What slivers can make the host do. A slice that asks for more waits, and no other one with it.
const (
	pause          = 15 * time.Second // until a port that was refused is asked for again, or another one is told of
	asksPerSecond  = 8                // of a slice: all hosts hear of what is stored then
	asksInOneBurst = 2 * slice.MaxHostPorts
)

// Config is what Ports needs.
type Config struct {
	// Reserve changes what a node has reserved; see serve.Server.
	Reserve func(ctx context.Context, slice, node string, change api.ReservationChange) error
	// Unclaim takes a port back that a sliver has bound; see machine.Outside.
	Unclaim func(owner string, p slice.HostPort) error
	Warn    func(id sliver.ID, message string)
	Wake    func()        // asks for a pass: what Trouble says has changed, or there is more to do
	Changes *rate.Limiter // of what is stored: of all slices of the host
	Log     *slog.Logger
}

// Ports are those of a host. Its methods may be called from many goroutines.
type Ports struct {
	cfg  Config
	work sync.WaitGroup

	mu      sync.Mutex // guards all below
	slices  map[uint16]*work
	refused map[boundPort]refusal
	warned  map[sliver.ID]time.Time
}

// work is what is under way for a slice.
type work struct {
	busy   bool // changes are
	missed bool // Sync was called meanwhile
	rate   *rate.Limiter
}

type boundPort struct {
	id   sliver.ID
	port slice.HostPort
}

type refusal struct {
	why   string
	until time.Time // then it is asked for again
}

// change is what one node is to reserve and release.
type change struct {
	id               sliver.ID
	slice            string // its name
	reserve, release []slice.HostPort
	room             int // for so many ports, beside those that it keeps
}

// New gives Ports of which none was refused.
func New(c Config) *Ports {
	return &Ports{
		cfg: c, slices: map[uint16]*work{}, refused: map[boundPort]refusal{}, warned: map[sliver.ID]time.Time{},
	}
}

// changes compares what slivers have bound with what they have reserved, by slice.
func changes(at plan.Place, inputs []plan.Input, seen *observe.Snapshot) map[uint16][]change {
	all := map[uint16][]change{}
	for i := range inputs {
		spec := inputs[i].Spec
		for j := range spec.Nodes {
			n := &spec.Nodes[j]
			if !at.Owns(n) {
				continue
			}
			c := change{id: sliver.ID{Slice: spec.ID, Node: n.Name}, slice: spec.Name}
			if c.find(n, inputs[i].Lost[n.Name], seen); len(c.reserve)+len(c.release) > 0 {
				all[spec.ID] = append(all[spec.ID], c)
			}
		}
	}
	return all
}

// find finds what a node is to reserve and release: nothing, if it has a sliver and of that nothing is known. A port
// that another node has is released; if it is still bound, it is asked for again, and refused.
func (c *change) find(n *slice.Node, lost map[slice.HostPort]string, seen *observe.Snapshot) {
	bound, known := seen.Bound[c.id]
	if !known && seen.Slivers[c.id].PID != 0 {
		return
	}
	has := n.HostPorts()
	for _, p := range bound {
		if !slices.Contains(has, p) && n.BindPorts.Has(p.Port) {
			c.reserve = append(c.reserve, p)
		}
	}
	for _, p := range n.BoundPorts {
		if !slices.Contains(bound, p) || lost[p] != "" {
			c.release = append(c.release, p)
		}
	}
	c.room = slice.MaxHostPorts - len(has) + len(c.release)
}

// Sync begins to make reservations what slivers have bound. Where it is about to do so, the next pass does the rest.
func (p *Ports) Sync(ctx context.Context, at plan.Place, inputs []plan.Input, seen *observe.Snapshot) {
	all := changes(at, inputs, seen)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(all, inputs)
	for id, w := range p.slices {
		w.missed = w.busy && len(all[id]) > 0
	}
	for id, some := range all {
		w := p.slices[id]
		if w == nil {
			w = &work{rate: rate.NewLimiter(asksPerSecond, asksInOneBurst)}
			p.slices[id] = w
		}
		if w.busy {
			continue
		}
		w.busy = true
		p.work.Go(func() {
			for _, c := range some {
				p.apply(ctx, c, w.rate)
			}
			p.mu.Lock()
			w.busy = false
			missed := w.missed
			p.mu.Unlock()
			if missed {
				p.cfg.Wake()
			}
		})
	}
}

// forget drops what is remembered of ports that are not bound any more, and of slices that are gone. The caller holds
// mu.
func (p *Ports) forget(all map[uint16][]change, inputs []plan.Input) {
	wanted, there := map[boundPort]bool{}, map[uint16]bool{}
	for _, some := range all {
		for _, c := range some {
			for _, port := range c.reserve {
				wanted[boundPort{c.id, port}] = true
			}
		}
	}
	for i := range inputs {
		there[inputs[i].Spec.ID] = true
	}
	maps.DeleteFunc(p.refused, func(k boundPort, _ refusal) bool { return !wanted[k] })
	maps.DeleteFunc(p.warned, func(id sliver.ID, _ time.Time) bool { return !there[id.Slice] })
	maps.DeleteFunc(p.slices, func(id uint16, w *work) bool { return !there[id] && !w.busy })
}

// Wait waits for what a call of Sync has begun.
func (p *Ports) Wait() { p.work.Wait() }

// apply releases first, so that there is room for what is reserved. A port that is refused keeps no other from being
// reserved.
func (p *Ports) apply(ctx context.Context, c change, limit *rate.Limiter) {
	if len(c.release) > 0 {
		all := names(c.release)
		err := p.await(ctx, limit)
		if err == nil {
			err = p.cfg.Reserve(ctx, c.slice, c.id.Node, api.ReservationChange{Release: all, Bound: true})
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.cfg.Log.Warn("release ports that a node has bound no longer", "slice", c.slice,
				"node", c.id.Node, "ports", all, "error", err)
		}
	}
	for _, port := range c.reserve {
		k := boundPort{c.id, port}
		if p.isHeld(k) {
			continue
		}
		err := c.full()
		if c.room > 0 {
			if p.await(ctx, limit) != nil {
				return
			}
			one := api.ReservationChange{Reserve: []string{port.String()}, Bound: true}
			err = p.cfg.Reserve(ctx, c.slice, c.id.Node, one)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.room--
		}
		p.note(k, c, err)
	}
}

// await waits until a slice, which has this limit, may ask for a change. It has one at a time, so slices take turns.
func (p *Ports) await(ctx context.Context, limit *rate.Limiter) error {
	if err := limit.Wait(ctx); err != nil {
		return err
	}
	return p.cfg.Changes.Wait(ctx)
}

// full is the answer to a node that has as many ports as it may have. It is known without a question.
func (c *change) full() error {
	return &api.Problem{Status: http.StatusInsufficientStorage, Detail: fmt.Sprintf("%s would have %d ports, and "+
		"may have %d", c.id.Node, slice.MaxHostPorts+1, slice.MaxHostPorts)}
}

func (p *Ports) isHeld(k boundPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.refused[k].until)
}

// note remembers how it ended to reserve a port.
func (p *Ports) note(k boundPort, c change, err error) {
	now := time.Now()
	p.mu.Lock()
	before, told := p.refused[k].why, now.Sub(p.warned[k.id]) < pause
	if err == nil {
		delete(p.refused, k)
	} else {
		p.refused[k] = refusal{reason(err), now.Add(pause)}
		told = told || before == reason(err)
		if !told {
			p.warned[k.id] = now
		}
	}
	p.mu.Unlock()
	if err != nil {
		if isRefusal(err) {
			if err := p.cfg.Unclaim(plan.NodeID(k.id).String(), k.port); err != nil {
				p.cfg.Log.Warn("let others bind a port", "port", k.port.String(), "error", err)
			}
		}
		if !told {
			p.cfg.Log.Warn("reserve a port that a node has bound", "slice", c.slice, "node", k.id.Node,
				"port", k.port.String(), "error", reason(err))
			p.cfg.Warn(k.id, fmt.Sprintf("port %s is bound and cannot be reached: %s", k.port, reason(err)))
		}
	}
	if (err == nil) != (before == "") {
		p.cfg.Wake()
	}
}

// isRefusal reports whether it was decided that a node does not get a port. Else the store did not answer, perhaps: the
// node keeps its claim until it does.
func isRefusal(err error) bool {
	var problem *api.Problem
	return errors.As(err, &problem) &&
		(problem.Status < http.StatusInternalServerError || problem.Status == http.StatusInsufficientStorage)
}

func reason(err error) string {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Detail != "" {
		return problem.Detail
	}
	return err.Error()
}

func names(ports []slice.HostPort) (all []string) {
	for _, p := range ports {
		all = append(all, p.String())
	}
	return all
}

// Trouble says which ports a sliver has bound and does not have, and why; empty: it has all.
func (p *Ports) Trouble(id sliver.ID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first *boundPort
	for k := range p.refused {
		if k.id == id && (first == nil || k.port.Compare(first.port) < 0) {
			first = &k
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("port %s is bound and cannot be reached: %s", first.port, p.refused[*first].why)
}
