package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// Grace is how long a host must have been lost before its nodes start elsewhere: the time to live of its lease once
// more, and time to end what it runs. The host counts from its last renewal, so it has ended its nodes before.
const Grace = 15 * time.Second

// Lead does what one member of a cluster must do for all, until ctx ends or the store fails. It moves nodes away from
// hosts that are lost, draining or removed; it drops hosts from Node.Left that have released the node; it gives nodes
// that are older than the cluster the host that they are on; and it fits MTUs to paths that changed. Lead is to run as
// the leader of store.Campaign. Two leaders at the same time write the same; the second write fails as a conflict.
func (c *Controller) Lead(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes, err := c.store.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	m := hostMonitor{grace: c.grace}
	for {
		hosts, err := c.cluster.Hosts(ctx)
		if err != nil {
			return fmt.Errorf("list hosts: %w", err)
		}
		seen := m.observe(hosts, time.Now())
		for _, e := range seen.events {
			c.events.Publish(e)
		}
		stays, err := c.reschedule(ctx, hosts, seen)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(stays)) {
			if m.reported[name] != stays[name] {
				c.events.Publish(events.Event{Slice: name, Kind: events.Failed, Message: stays[name]})
			}
		}
		m.reported = stays
		if !await(ctx, changes, seen.next) {
			return ctx.Err()
		}
	}
}

// await waits until hosts or slices may have changed, or the time has passed. It reports false when ctx or the watch
// has ended.
func await(ctx context.Context, changes <-chan store.Change, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case change, ok := <-changes:
			switch {
			case !ok:
				return false
			case change.What == store.HostsChanged, change.What == store.SpecChanged,
				change.What == store.Resync:
				return true
			}
		}
	}
}

// Reschedule starts the nodes of lost hosts elsewhere, where their policy asks for it, and moves nodes away from hosts
// that are draining or were removed. The caller guarantees that lost hosts have ended such nodes: they have been lost
// for Grace. stays gives, by slice, why something stays where it should not be.
func (c *Controller) Reschedule(ctx context.Context, lost []string) (stays map[string]string, err error) {
	hosts, err := c.cluster.Hosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	return c.reschedule(ctx, hosts, snapshot{lost: lost, paths: true})
}

func (c *Controller) reschedule(ctx context.Context, hosts []store.HostState, seen snapshot) (stays map[string]string,
	err error) {
	records, err := c.store.Slices(ctx)
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	leave := mustLeave(hosts, seen.lost)
	stays = map[string]string{}
	for _, r := range records {
		if r.Deleting || r.Corrupt {
			continue
		}
		used, err := c.usage.get(ctx, c.store, r)
		if err != nil {
			return nil, fmt.Errorf("read network %s: %w", r.Name, err)
		}
		on := slices.Collect(maps.Keys(used.of))
		concerned := slices.ContainsFunc(on, leave) || seen.paths && len(on) > 1 || used.unplaced || used.left
		if !concerned {
			continue
		}
		why, err := c.placeAgain(ctx, r.Name, seen.lost)
		if err != nil {
			return nil, err
		}
		if why != "" {
			stays[r.Name] = why
		}
	}
	return stays, nil
}

// mustLeave gives a function that reports whether nodes have to leave a host.
func mustLeave(hosts []store.HostState, lost []string) func(host string) bool {
	stays := map[string]bool{}
	for _, h := range hosts {
		stays[h.Name] = !h.Policy.Draining && !slices.Contains(lost, h.Name)
	}
	return func(host string) bool { return !stays[host] }
}

// placeAgain places a slice again. why is the reason why nodes stay that should leave; err is an error of the store.
func (c *Controller) placeAgain(ctx context.Context, name string, lost []string) (why string, err error) {
	err = untilNoConflict(ctx, func() (err error) {
		why, err = c.placeAgainOnce(ctx, name, lost)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDeleting), errors.Is(err, store.ErrCorrupt):
		return "", nil
	case errors.Is(err, store.ErrConflict):
		return "it, or what hosts have left, changes too often for it to be moved", nil
	}
	return why, err
}

func (c *Controller) placeAgainOnce(ctx context.Context, name string, lost []string) (why string, err error) {
	prev, record, err := c.store.Slice(ctx, name)
	if err != nil || record.Deleting {
		return "", err
	}
	c.placeMu.Lock()
	defer c.placeMu.Unlock()
	admission, err := c.admission(ctx, name)
	if err != nil {
		return "", err
	}
	next := copyForPlacing(prev)
	p, err := c.placing(ctx, prev, next, record.Generation+1)
	if err != nil {
		return "", err
	}
	if p.founder() == "" && hasUnplaced(prev) {
		return "", nil // until the host that runs it reports it
	}
	p.background, p.lost = true, map[string]bool{}
	for _, host := range lost {
		p.lost[host] = true
	}
	var refusal *Refusal
	if err := p.place(); errors.As(err, &refusal) {
		return refusal.Message, nil
	} else if err != nil {
		return "", err
	}
	if len(p.notes) > 0 {
		why = p.notes[0]
		if more := len(p.notes) - 1; more > 0 {
			why += fmt.Sprintf(" (and %d more)", more)
		}
	}
	// A version in which hosts are merely removed from Left is stored, too: these hosts then release the slice.
	if Diff(prev, next).Empty() && maps.Equal(leftCounts(prev), leftCounts(next)) {
		return why, nil
	}
	conditions := admission.of(prev, next)
	for _, host := range p.freed() {
		conditions = append(conditions, c.store.WhileLost(host))
	}
	if err := c.store.PutSlice(ctx, next, record.Generation, conditions...); err != nil {
		return "", fmt.Errorf("store network %s: %w", name, err)
	}
	for _, node := range slices.Sorted(maps.Keys(p.moves)) {
		c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted,
			Message: fmt.Sprintf("moved from host %s to %s", p.moves[node], next.Node(node).Host)})
	}
	return why, nil
}

// copyForPlacing copies a slice as far as placing changes it.
func copyForPlacing(s *slice.Slice) *slice.Slice {
	next := *s
	next.Nodes, next.Links = slices.Clone(s.Nodes), slices.Clone(s.Links)
	for i := range next.Nodes {
		next.Nodes[i].Interfaces = slices.Clone(next.Nodes[i].Interfaces)
	}
	return &next
}
