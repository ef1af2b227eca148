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

// Grace is for how long a host must have been lost before its nodes start elsewhere: the time to live of its lease once more, and
// time to end what it runs. The host counts from its last renewal, so it is through before.
const Grace = 15 * time.Second

// Lead does what one member of a cluster must do for all, until ctx ends or the store fails: it moves nodes away from hosts that are lost, being
// drained, or no hosts any more, forgets hosts that nodes were moved away from once these have let go of them, gives nodes from before there was a cluster the host that they are on, and fits MTUs to paths that changed. It is to run as the leader of store.Campaign. Should there be two for a moment, they write the
// same thing, and one of them is told so.
func (c *Controller) Lead(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes, err := c.store.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	w := watchman{grace: c.grace}
	for {
		hosts, err := c.cluster.Hosts(ctx)
		if err != nil {
			return fmt.Errorf("list hosts: %w", err)
		}
		seen := w.look(hosts, time.Now())
		for _, e := range seen.news {
			c.events.Publish(e)
		}
		stays, err := c.reschedule(ctx, hosts, seen)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(stays)) {
			if w.said[name] != stays[name] {
				c.events.Publish(events.Event{Slice: name, Kind: events.Failed, Message: stays[name]})
			}
		}
		w.said = stays
		if !await(ctx, changes, seen.again) {
			return ctx.Err()
		}
	}
}

// await waits until hosts or slices may have changed, or the time is over. It reports false when there is no more to wait for.
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
			case change.What == store.HostsChanged, change.What == store.SpecChanged, change.What == store.Resync:
				return true
			}
		}
	}
}

// watchman remembers what the leader saw and said of hosts, so that each thing is said once. It is pure.
type watchman struct {
	grace time.Duration
	alive map[string]bool   // nil before the first look
	paths string            // what tunnels between the hosts depend on
	said  map[string]string // why nodes of a slice stay where they should not, by slice
}

// sight is what one look brought.
type sight struct {
	news  []events.Event
	lost  []string      // hosts that have been lost for the grace
	paths bool          // what tunnels depend on changed, or was not known: MTUs may not fit any more
	again time.Duration // when to look again at the latest
}

// look compares hosts with those of the last look.
func (w *watchman) look(hosts []store.HostState, now time.Time) sight {
	const most = 30 * time.Second // what did not fit may fit by then
	var news []events.Event
	var lost []string
	again, paths := most, ""
	seen := map[string]bool{}
	for _, h := range hosts {
		seen[h.Name] = h.Alive
		carrier, known := underlay(&h)
		paths += fmt.Sprintln(h.Name, h.Address, carrier.MTU, known, h.Paths)
		was, known := w.alive[h.Name]
		switch {
		case h.Alive && known && !was:
			news = append(news, events.Event{Kind: HostBack, Message: "host " + h.Name + " is back"})
		case h.Alive && !known && w.alive != nil:
			news = append(news, events.Event{Kind: HostBack, Message: "host " + h.Name + " joined the cluster"})
		case !h.Alive && (was || w.alive == nil):
			news = append(news, events.Event{Kind: HostLost, Message: fmt.Sprintf("host %s is lost: its nodes that may be rescheduled start elsewhere in %v", h.Name, max(w.grace-now.Sub(h.Since), 0).Round(time.Second))})
		}
		if h.Alive {
			continue
		}
		if left := w.grace - now.Sub(h.Since); left > 0 {
			again = min(again, left)
		} else {
			lost = append(lost, h.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.alive)) {
		if _, still := seen[name]; !still {
			news = append(news, events.Event{Kind: HostLost, Message: "host " + name + " was removed from the cluster"})
		}
	}
	changed := paths != w.paths
	w.alive, w.paths = seen, paths
	return sight{news, lost, changed, again}
}

// Events of the cluster: of no slice.
const (
	HostLost events.Kind = "host-lost"
	HostBack events.Kind = "host-back"
)

// Reschedule starts the nodes of lost hosts elsewhere, where their policy is to, and moves nodes away from hosts that are being drained
// or were removed. The caller answers for it that lost hosts have ended such nodes: they have been lost for Grace. It gives, by slice,
// why something stays where it should not be; all else is done.
func (c *Controller) Reschedule(ctx context.Context, lost []string) (stays map[string]string, err error) {
	hosts, err := c.cluster.Hosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	return c.reschedule(ctx, hosts, sight{lost: lost, paths: true})
}

func (c *Controller) reschedule(ctx context.Context, hosts []store.HostState, seen sight) (stays map[string]string, err error) {
	records, err := c.store.Slices(ctx)
	if err != nil {
		return nil, fmt.Errorf("list slices: %w", err)
	}
	leave := unwelcome(hosts, seen.lost)
	stays = map[string]string{}
	for _, r := range records {
		if r.Deleting || r.Corrupt {
			continue
		}
		held, err := c.held.get(ctx, c.store, r)
		if err != nil {
			return nil, fmt.Errorf("read slice %s: %w", r.Name, err)
		}
		on := slices.Collect(maps.Keys(held.of))
		concerned := slices.ContainsFunc(on, leave) || seen.paths && len(on) > 1 || held.homeless || held.left
		if !concerned {
			continue
		}
		why, err := c.replace(ctx, r.Name, seen.lost)
		if err != nil {
			return nil, err
		}
		if why != "" {
			stays[r.Name] = why
		}
	}
	return stays, nil
}

// unwelcome tells of which hosts nodes should go away.
func unwelcome(hosts []store.HostState, lost []string) func(host string) bool {
	stays := map[string]bool{}
	for _, h := range hosts {
		stays[h.Name] = !h.Policy.Draining && !slices.Contains(lost, h.Name)
	}
	return func(host string) bool { return !stays[host] }
}

// replace places a slice anew. why tells what stays though it should not; err, that the store does not answer.
func (c *Controller) replace(ctx context.Context, name string, lost []string) (why string, err error) {
	for try := 1; ; try++ {
		why, err = c.replaceOnce(ctx, name, lost)
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDeleting), errors.Is(err, store.ErrCorrupt):
			return "", nil
		case !errors.Is(err, store.ErrConflict):
			return why, err
		case try == attempts:
			return "it changes too often to be moved", nil
		}
	}
}

func (c *Controller) replaceOnce(ctx context.Context, name string, lost []string) (why string, err error) {
	prev, record, err := c.store.Slice(ctx, name)
	if err != nil || record.Deleting {
		return "", err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	next := unplaced(prev)
	p, err := c.placing(ctx, prev, next, record.Generation+1)
	if err != nil {
		return "", err
	}
	if p.founder() == "" && homeless(prev) {
		return "", nil // the one that will have begun with it will say so
	}
	p.unasked, p.lost = true, map[string]bool{}
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
	// A version that says nothing but who has let go of nodes lets these hosts be done with the slice.
	if Diff(prev, next).Empty() && maps.Equal(leavings(prev), leavings(next)) {
		return why, nil
	}
	if err := c.store.PutSlice(ctx, next, record.Generation, p.freed()...); err != nil {
		return "", fmt.Errorf("store slice %s: %w", name, err)
	}
	for _, node := range slices.Sorted(maps.Keys(p.moves)) {
		c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted,
			Message: fmt.Sprintf("moved from host %s to %s", p.moves[node], next.Node(node).Host)})
	}
	return why, nil
}

// unplaced copies a slice as far as placing changes it.
func unplaced(s *slice.Slice) *slice.Slice {
	next := *s
	next.Nodes, next.Links = slices.Clone(s.Nodes), slices.Clone(s.Links)
	for i := range next.Nodes {
		next.Nodes[i].Interfaces = slices.Clone(next.Nodes[i].Interfaces)
	}
	return &next
}
