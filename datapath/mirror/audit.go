package mirror

import (
	"context"
	"errors"
	"slices"
	"time"
)

// audit compares one router after the other with its kernel, for ever, at the rate that was asked for.
func (m *Mirror) audit(ctx context.Context) {
	for ctx.Err() == nil {
		names := m.Names()
		slices.Sort(names)
		if len(names) == 0 {
			sleep(ctx, time.Second)
		}
		for _, name := range names {
			begun := time.Now()
			routes := m.auditOne(ctx, name)
			// A router without routes costs something, too.
			budget := time.Duration(max(routes, 100)) * time.Second / time.Duration(m.cfg.AuditRate)
			if sleep(ctx, budget-time.Since(begun)); ctx.Err() != nil {
				return
			}
		}
	}
}

// averageRoute is the length of a route's message in a dump, roughly.
const averageRoute = 60

func (m *Mirror) auditOne(ctx context.Context, name string) (routes int) {
	n, err := m.node(name)
	if err != nil {
		return 0 // removed meanwhile
	}
	found, routes, err := n.verify(ctx, func(size int) {
		sleep(ctx, time.Duration(size/averageRoute)*time.Second/time.Duration(m.cfg.AuditRate))
	})
	switch {
	case errors.Is(err, errNoSession) || ctx.Err() != nil:
	case err != nil:
		n.log.Warn("audit failed", "error", err)
	case len(found) > 0 && !n.status().Synchronised: // a dump is to come
	case len(found) > 0:
		n.log.Error("audit: the mirror differs from the kernel", "differences", len(found), "first",
			found[0].String())
		if m.cfg.OnDifference != nil {
			m.cfg.OnDifference(name, found)
		}
		n.startOver("an audit found that the mirror differs: " + found[0].String())
	}
	return routes
}

// startOver ends the node's session. What is in the maps is not what this process put there, so it is no base for
// anything.
func (n *node) startOver(why string) {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.broken = errors.New(why)
	s.mu.Unlock()
	s.wake()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(max(d, 0)):
	}
}
