package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// The fence. A node that starts elsewhere when its host is lost must not run on two hosts. A host is lost when it has not renewed its lease
// for leaseTTL; so a host that could not do that ends such nodes by itself, fenceMargin earlier. They stay ended until it holds a lease again
// and has read anew what it is to have. All other nodes run on.
//
//	registered ── lease renewed in time ──> registered
//	     ▲                  └── not ──> fenced: what may start elsewhere is ended, and not made
//	     └── lease renewed, and everything read anew ──┘
//
// An agent that starts is fenced but for this: it waits for one answer of the store before it ends anything. While no agent lives, the sentry
// keeps the fence (sentry.go).
const (
	leaseTTL    = 10 * time.Second
	fenceMargin = 2 * time.Second        // for ending nodes
	fencePoll   = 250 * time.Millisecond // between looks for the way back
	fenceLook   = time.Second            // between looks at the time: timers stand still while a machine is suspended
)

// lease is what the agent needs of a store.Lease.
type lease interface {
	Deadline() time.Time   // when it ends, unless it is renewed before
	Lost() <-chan struct{} // closed when it is lost, perhaps earlier; another one when it is held again
}

// guard keeps the fence until ctx ends.
func (a *Agent) guard(ctx context.Context, l lease) {
	for ctx.Err() == nil {
		lost := l.Lost()
		a.post(l)
		wait := min(time.Until(l.Deadline())-fenceMargin, fenceLook)
		if wait <= 0 {
			a.closeFence(ctx)
			wait = fencePoll
		} else if a.isFenced() {
			a.openFence(ctx, l)
			wait = fencePoll
		}
		select {
		case <-ctx.Done():
		case <-lost:
			a.closeFence(ctx)
		case <-time.After(wait):
			continue
		}
		select { // lost stays closed until the lease is held again
		case <-ctx.Done():
		case <-time.After(fencePoll):
		}
	}
}

func (a *Agent) closeFence(ctx context.Context) {
	if !a.isFenced() {
		a.cfg.Log.Warn("the cluster may take this host for lost: nodes that it may start elsewhere are ended here")
		a.setFenced(true)
	}
	a.endFenced(ctx)
}

// openFence reads anew what is wanted here: while the lease is held, nothing is taken from this host without its seeing it.
func (a *Agent) openFence(ctx context.Context, l lease) {
	lost := l.Lost()
	err := a.loadAll(store.Linearizable(ctx)) // not what a server that was cut off remembers
	a.contact.note(err)
	if err != nil || time.Until(l.Deadline()) < fenceMargin {
		return
	}
	select {
	case <-lost:
	default:
		a.cfg.Log.Info("this host is one of the cluster's again")
		a.setFenced(false)
	}
}

func (a *Agent) isFenced() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fenced
}

func (a *Agent) setFenced(on bool) {
	a.mu.Lock()
	a.fenced = on
	a.mu.Unlock()
	a.interrupt()
	a.Nudge()
}

// noteFences keeps the marks as the slices want them; a new sliver has its mark from the start. There is a sentry before there is a mark.
func (a *Agent) noteFences(at plan.Place, wishes []plan.Input, seen *sight) {
	if a.cfg.Cluster == nil {
		return
	}
	if marks(at, wishes) {
		a.needSentry()
	}
	for _, w := range wishes {
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
			s, there := seen.slivers[id]
			want := plan.FenceMark(n)
			if !there || !at.Owns(n) || s.State == sliver.Broken || s.Notes[plan.FenceNote] == want {
				continue
			}
			if err := a.runtime.Note(id, plan.FenceNote, want); err != nil {
				a.cfg.Log.Warn("note that a node may start elsewhere", "node", id.String(), "error", err)
			}
		}
	}
}

// needSentry sees to it that there is a sentry, or says that there is none.
func (a *Agent) needSentry() {
	if err := a.callSentry(); err != nil {
		a.cfg.Log.Error("nodes that start elsewhere are not ended here should this process be killed", "error", err)
	}
}

// marks reports whether a host may have nodes now that the fence ends.
func marks(at plan.Place, wishes []plan.Input) bool {
	return !at.Fenced && slices.ContainsFunc(wishes, func(w plan.Input) bool {
		return slices.ContainsFunc(w.Spec.Nodes, func(n slice.Node) bool { return at.Owns(&n) && plan.FenceMark(&n) != "" })
	})
}

// endFenced ends what the fence ends, at once: no plan, and nothing that waits for one, is in the way. Passes keep it so.
func (a *Agent) endFenced(ctx context.Context) {
	all, err := a.runtime.List()
	if err != nil {
		a.cfg.Log.Error("end nodes that may start elsewhere", "error", err)
		return
	}
	var group sync.WaitGroup
	for _, s := range all {
		if s.Notes[plan.FenceNote] == "" {
			continue
		}
		group.Go(func() {
			a.fast.remove(s.ID)
			if err := a.runtime.Delete(context.WithoutCancel(ctx), s.ID); err != nil {
				a.cfg.Log.Error("end a node that may start elsewhere", "node", s.ID.String(), "error", err)
				return
			}
			a.pids.Delete(s.ID)
			a.Nudge()
		})
	}
	group.Wait()
}
