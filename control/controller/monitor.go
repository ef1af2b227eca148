package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
)

// Events of the cluster: of no slice.
const (
	HostLost events.Kind = "host-lost"
	HostBack events.Kind = "host-back"
)

// hostMonitor compares each snapshot of the hosts with the one before, so that each change is published once. It is
// pure.
type hostMonitor struct {
	grace    time.Duration
	alive    map[string]bool   // nil before the first snapshot
	paths    string            // what tunnels between the hosts depend on
	reported map[string]string // why nodes of a slice stay where they should not, by slice
}

// snapshot is what the leader acts on after one look at the hosts.
type snapshot struct {
	events []events.Event
	lost   []string      // hosts that have been lost for the grace
	paths  bool          // what tunnels depend on changed, or is seen for the first time: MTUs may not fit any more
	next   time.Duration // how long the next snapshot may be away, at most
}

// observe compares hosts with those of the last snapshot.
func (m *hostMonitor) observe(hosts []store.HostState, now time.Time) snapshot {
	const most = 30 * time.Second // nodes that did not fit may fit by then
	var news []events.Event
	var lost []string
	next, paths := most, ""
	seen := map[string]bool{}
	for _, h := range hosts {
		seen[h.Name] = h.Alive
		carrier, known := underlay(&h)
		paths += fmt.Sprintln(h.Name, h.Address, carrier.MTU, known, h.Paths)
		was, known := m.alive[h.Name]
		switch {
		case h.Alive && known && !was:
			news = append(news, events.Event{Kind: HostBack, Message: "host " + h.Name + " is back"})
		case h.Alive && !known && m.alive != nil:
			news = append(news, events.Event{Kind: HostBack,
				Message: "host " + h.Name + " joined the cluster"})
		case !h.Alive && (was || m.alive == nil):
			left := max(m.grace-now.Sub(h.Since), 0).Round(time.Second)
			news = append(news, events.Event{Kind: HostLost, Message: fmt.Sprintf(
				"host %s is lost: its nodes that may be rescheduled start elsewhere in %v",
				h.Name, left)})
		}
		if h.Alive {
			continue
		}
		if left := m.grace - now.Sub(h.Since); left > 0 {
			next = min(next, left)
		} else {
			lost = append(lost, h.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.alive)) {
		if _, still := seen[name]; !still {
			news = append(news, events.Event{Kind: HostLost,
				Message: "host " + name + " was removed from the cluster"})
		}
	}
	changed := paths != m.paths
	m.alive, m.paths = seen, paths
	return snapshot{news, lost, changed, next}
}
