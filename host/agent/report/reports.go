// Package report tells the store and the users of the API how the slices on one host are: what was observed, what is
// planned and what failed become statuses and events.
package report

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/failures"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/agent/waits"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Config is what Reports needs.
type Config struct {
	Host    string // this machine's name in the store
	Alone   bool   // this machine is in no cluster
	Store   Store
	Contact *store.Contact // is told of each answer of the store, and of each that did not come
	Inputs  *inputs.Inputs
	Events  *events.Bus
	Log     *slog.Logger

	LogPath func(slice, node string) string // the file of what a node's first process printed
	Trouble func(id sliver.ID) string       // what keeps a router off the fast path; empty: nothing
	Ports   func(id sliver.ID) string       // which ports a node has bound in vain, and why; empty: none
	Wake    func()                          // asks for a pass soon
}

// Store is the part of a store.ForAgent that is written.
type Store interface {
	PutStatus(ctx context.Context, host string, st slice.Status) error
	SettledBy(ctx context.Context, host, name string) (bool, error)
	Release(ctx context.Context, host, name string) error
}

// Reports are what a host tells of its slices. Their methods may be called from many goroutines.
type Reports struct {
	cfg Config

	flushes chan struct{} // the store is to be told of something now

	writing sync.Mutex // held while reports are written: none overtakes another; taken before mu

	mu      sync.Mutex         // guards all below; taken before that of the inputs
	reports map[string]*report // by slice
	gone    []string           // slices of which the store is to be told that nothing is left here
}

// report is what is told of one slice, and what is remembered in order to tell it.
type report struct {
	status      slice.Status
	restarts    map[string]int    // by node: how often its first process was started anew
	lost        map[string]string // by node: which of its ports others have
	fresh       bool              // differs from what was published
	settles     bool              // it settled, which is to be announced if all hosts have
	unannounced *slice.Status     // with which it settled; the store has not said yet whether all hosts have
	ask         time.Time         // when to ask that again
	absent      bool              // there is nothing of it here, and no host waits to hear that
	released    bool              // the store has nothing of it from this host
}

// New gives reports of nothing.
func New(cfg Config) *Reports {
	return &Reports{cfg: cfg, flushes: make(chan struct{}, 1), reports: make(map[string]*report)}
}

// Pass is what one pass of the loop found and plans.
type Pass struct {
	At       plan.Place
	Inputs   []plan.Input
	Want     *plan.Wanted
	Broken   map[uint16]error // by slice: why it cannot be planned
	Seen     *observe.Snapshot
	Actions  []reconcile.Action
	Failures *failures.Failures
	Boots    map[uint16]int // by slice: nodes whose exec lines keep it from being settled
	Waits    waits.Waits    // nodes that are not started yet, which does so, too
	Now      time.Time
}

// Begin brings the reports up to what a pass found and plans.
func (r *Reports) Begin(p Pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := make(map[uint16]int)
	for _, act := range p.Actions {
		left[act.Key.Slice]++
	}
	for id := range p.Waits {
		left[id.Slice]++
	}
	for i := range p.Inputs {
		w := &p.Inputs[i]
		todo := left[w.Spec.ID] + left[0] + p.Boots[w.Spec.ID] + p.Failures.Restarting(w.Spec.ID, p.Now)
		r.updateLocked(&p, w, todo)
	}
	for name, id := range r.cfg.Inputs.Deleting() {
		one := r.ofLocked(name)
		one.status.Slice, one.status.Settled, one.status.Errors = name, false, p.Failures.Messages(id)
		one.status.Done, one.status.Total, one.fresh = 0, left[id]+left[0], true
		one.absent = false
	}
}

// updateLocked brings the report of a slice up to what a pass found; so many things are still to be done for it.
func (r *Reports) updateLocked(p *Pass, w *plan.Input, todo int) {
	one := r.ofLocked(w.Spec.Name)
	next := r.status(p, w, one)
	if err := p.Broken[w.Spec.ID]; err != nil {
		next.Errors = append(next.Errors, err.Error())
	}
	if one.status.Generation == next.Generation && (!one.status.Settled || todo == 0) {
		// Also when this host has settled: others may not have, and the sum is shown.
		next.Done = one.status.Done
	}
	next.Total = next.Done + todo
	next.Settled = todo == 0 && len(next.Errors) == 0
	r.announceLocked(one, &next)
	r.announceLostLocked(one, w)
	if next.Settled != one.status.Settled {
		r.flush()
	}
	y := p.Want.Share(w.Spec.ID)
	one.absent = y != nil && !y.Holds() && !p.Seen.Slices[w.Spec.ID] && !hasLeftovers(w.Spec, r.cfg.Host)
	one.status, one.fresh = next, true
}

// announceLostLocked publishes which ports nodes have lost to others since the last report.
func (r *Reports) announceLostLocked(one *report, w *plan.Input) {
	before := one.lost
	one.lost = make(map[string]string)
	for _, node := range slices.Sorted(maps.Keys(w.Lost)) {
		why := w.WhyLost(node)
		if one.lost[node] = why; why != before[node] {
			r.publish(events.Event{Slice: w.Spec.Name, Node: node, Kind: events.Failed, Message: why})
		}
	}
}

// hasLeftovers reports whether a node was moved away from a host and others want to hear that it is gone.
func hasLeftovers(s *slice.Slice, host string) bool {
	for i := range s.Nodes {
		if _, was := s.Nodes[i].Left[host]; was {
			return true
		}
	}
	return false
}

func (r *Reports) ofLocked(name string) *report {
	one := r.reports[name]
	if one == nil {
		one = &report{restarts: make(map[string]int)}
		r.reports[name] = one
	}
	return one
}

// Reopen reports that a slice is not settled any more: what failed of it is tried again at once.
func (r *Reports) Reopen(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.ofLocked(name)
	one.status.Slice, one.status.Settled, one.fresh = name, false, true
	one.status.Done, one.status.Total = 0, 0
}

// Forget drops the report of a slice that is gone.
func (r *Reports) Forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reports, name)
}

// Acted counts an action that has ended and notes what it did to its node. before is the cause of its failure the last
// time; what failed as it did before is no news.
func (r *Reports) Acted(act reconcile.Action, before, err error, f *failures.Failures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, id := range r.cfg.Inputs.Deleting() {
		if id == act.Key.Slice || act.Key.Slice == 0 {
			one := r.ofLocked(name)
			one.status.Done, one.status.Errors, one.fresh = one.status.Done+1, f.Messages(id), true
		}
	}
	for _, w := range r.cfg.Inputs.All() {
		if w.Spec.ID != act.Key.Slice && act.Key.Slice != 0 {
			continue
		}
		one := r.ofLocked(w.Spec.Name)
		one.fresh = true
		one.status.Done++
		if err == nil {
			r.advanceLocked(one, w.Spec.Name, act)
			continue
		}
		one.status.Errors = f.Messages(w.Spec.ID)
		if before == nil || before.Error() != err.Error() {
			r.publish(events.Event{
				Slice: w.Spec.Name, Node: nodeOf(act.Key), Kind: events.Failed, Message: err.Error(),
			})
		}
	}
}

// advanceLocked notes the phase into which an action that succeeded brought its node.
func (r *Reports) advanceLocked(one *report, name string, act reconcile.Action) {
	n, known := one.status.Nodes[act.Key.Name]
	if !known || act.Op == reconcile.OpDelete {
		return
	}
	was := n.Phase
	switch act.Key.Kind {
	case plan.KindSliver:
		n.Phase = slice.Starting
	case plan.KindProcess:
		n.Phase = slice.Running
	}
	if n.Phase != was {
		one.status.Nodes[act.Key.Name] = n
		r.publish(events.Event{Slice: name, Node: act.Key.Name, Kind: events.NodeChanged, Message: describe(n)})
	}
}

// nodeOf gives the node that a resource belongs to by name, or nothing.
func nodeOf(k reconcile.Key) string {
	switch k.Kind {
	case plan.KindSliver, plan.KindNodeNet, plan.KindConfig, plan.KindProgram, plan.KindOutside, plan.KindProcess,
		plan.KindBoot:
		return k.Name
	}
	return ""
}

// CountRestart notes that a node is made anew because its first process ended.
func (r *Reports) CountRestart(id sliver.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.cfg.Inputs.All() {
		if w.Spec.ID == id.Slice {
			r.ofLocked(w.Spec.Name).restarts[id.Node]++
		}
	}
}

// Warn publishes what went wrong in a node and is not tried again.
func (r *Reports) Warn(id sliver.ID, message string) {
	for _, w := range r.cfg.Inputs.All() {
		if w.Spec.ID == id.Slice {
			r.publish(events.Event{
				Slice: w.Spec.Name, Node: id.Node, Kind: events.Failed, Message: message,
			})
		}
	}
}

func (r *Reports) publish(e events.Event) { r.cfg.Events.Publish(e) }

// announceLocked publishes what changed between two reports.
func (r *Reports) announceLocked(one *report, next *slice.Status) {
	for _, name := range slices.Sorted(maps.Keys(next.Nodes)) {
		now, was := next.Nodes[name], one.status.Nodes[name]
		e := events.Event{Slice: next.Slice, Node: name}
		if now.Phase != was.Phase {
			e.Kind, e.Message = events.NodeChanged, describe(now)
			r.publish(e)
		}
		if now.FastPath != was.FastPath && now.FastPath != "" {
			e.Kind, e.Message = events.Failed, "off the fast path: "+now.FastPath
			r.publish(e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.Links)) {
		if was, known := one.status.Links[name]; known && next.Links[name].Up != was.Up {
			message := map[bool]string{false: "down", true: "up"}[next.Links[name].Up]
			r.publish(events.Event{
				Slice: next.Slice, Link: name, Kind: events.LinkChanged, Message: message,
			})
		}
	}
	switch news := !one.status.Settled || one.status.Generation != next.Generation; {
	case !next.Settled:
		one.settles = false
	case news && r.cfg.Alone:
		r.announceSettled(next)
	case news:
		one.settles = true
	}
}
