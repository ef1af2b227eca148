// Package member is what a host does to be one of a cluster: it keeps the fence, describes itself to the others, opens
// the interfaces that carry tunnels, and measures the paths to other hosts. It is given what it needs by functions and
// small interfaces, and knows neither the agent's loop nor what is wanted.
package member

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// The fence. A node that is rescheduled when its host is lost must not run on two hosts. A host is lost when it has not
// renewed its lease for LeaseTTL. So a host that could not renew it ends such nodes by itself, fenceMargin earlier.
// They stay ended until the host holds a lease again and has read anew what is wanted of it. All other nodes keep
// running.
//
//	registered ── lease renewed in time ──> registered
//	     ▲                  └── not ──> fenced: nodes that may start elsewhere are ended, and not made
//	     └── lease renewed, and everything read anew ──┘
//
// An agent that starts is fenced, except that it waits for one answer of the store before it ends anything. While no
// agent lives, the watchdog keeps the fence (watchdog.go).
const (
	LeaseTTL    = 10 * time.Second
	fenceMargin = 2 * time.Second        // for ending nodes
	fencePoll   = 250 * time.Millisecond // between attempts to open the fence
	fenceLook   = time.Second            // between looks at the time: timers stop while a machine is suspended
)

// Lease is what the fence needs of a store.Lease.
type Lease interface {
	Deadline() time.Time   // when it ends, unless it is renewed before
	Lost() <-chan struct{} // closed when it is lost, perhaps early; another channel when it is held again
}

// FenceActions are what the fence does to its host.
type FenceActions struct {
	End     func(context.Context)       // ends the nodes that may start elsewhere, at once
	Reload  func(context.Context) error // reads anew what is wanted; fails at a server that is cut off
	Changed func()                      // the fence was closed or opened
}

// Fence keeps the fence of one host.
type Fence struct {
	log  *slog.Logger
	act  FenceActions
	post func(Lease)

	mu     sync.Mutex // guards closed
	closed bool
}

// NewFence gives a fence that is closed, or open for good in a host that is in no cluster. post writes down for the
// watchdog until when the lease holds.
func NewFence(log *slog.Logger, closed bool, post func(Lease), act FenceActions) *Fence {
	return &Fence{log: log, act: act, post: post, closed: closed}
}

// Closed reports whether nodes that may start elsewhere must not run here.
func (f *Fence) Closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Begin takes a lease that was just granted, after what is wanted was read: the store may have been slow to answer
// that.
func (f *Fence) Begin(l Lease) {
	f.post(l)
	f.set(time.Until(l.Deadline()) < fenceMargin)
}

// Guard keeps the fence until ctx ends.
func (f *Fence) Guard(ctx context.Context, l Lease) {
	for ctx.Err() == nil {
		lost := l.Lost()
		f.post(l)
		wait := min(time.Until(l.Deadline())-fenceMargin, fenceLook)
		if wait <= 0 {
			f.shut(ctx)
			wait = fencePoll
		} else if f.Closed() {
			f.tryOpen(ctx, l)
			wait = fencePoll
		}
		select {
		case <-ctx.Done():
		case <-lost:
			f.shut(ctx)
		case <-time.After(wait):
			continue
		}
		select { // lost stays closed until the lease is held again
		case <-ctx.Done():
		case <-time.After(fencePoll):
		}
	}
}

func (f *Fence) shut(ctx context.Context) {
	if !f.Closed() {
		f.log.Warn("the cluster may take this host for lost: nodes that it may start elsewhere are ended here")
		f.set(true)
	}
	f.act.End(ctx)
}

// tryOpen reads anew what is wanted here: while the lease is held, nothing is moved away from this host without its
// seeing that.
func (f *Fence) tryOpen(ctx context.Context, l Lease) {
	lost := l.Lost()
	err := f.act.Reload(ctx)
	if err != nil || time.Until(l.Deadline()) < fenceMargin {
		return
	}
	select {
	case <-lost:
	default:
		f.log.Info("this host is one of the cluster's again")
		f.set(false)
	}
}

func (f *Fence) set(closed bool) {
	f.mu.Lock()
	f.closed = closed
	f.mu.Unlock()
	f.act.Changed()
}
