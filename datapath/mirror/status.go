package mirror

import "time"

// Status is what a user may know of one router's mirror.
type Status struct {
	Synchronised bool
	IPv4, IPv6   FamilyStatus
	Off          []LegStatus // interfaces that are off the fast path, while the router is on it
	Neighbours   int
	Counters
	LastLag  time.Duration // from the arrival of the last event to the maps
	LastDump time.Duration // how long the last dump of everything took

	// Lost are ports whose interface was deleted in the node, or moved to another namespace. They are no legs, also
	// if an interface with that ifindex appears: whether it is the same only the owner of the ports knows. He calls
	// Set again when it is.
	Lost []int
}

// Counters count since the router was set first. They never go back.
type Counters struct {
	Resyncs int    // how often everything had to be read again off the fast path
	Left    [2]int // how often IPv4 and IPv6 left the fast path, for whatever reason
	Events  int    // taken over one by one
}

// Plus adds what was counted elsewhere.
func (c Counters) Plus(o Counters) Counters {
	c.Resyncs += o.Resyncs
	c.Events += o.Events
	for f := range families {
		c.Left[f] += o.Left[f]
	}
	return c
}

// FamilyStatus is that of IPv4 or IPv6.
type FamilyStatus struct {
	FastPath bool
	Why      []string // it is not on the fast path
	Routes   int      // prefixes
}

// Status of a router, as it was when its session last waited for the kernel: whatever the session does now, nobody
// waits for it.
func (m *Mirror) Status(name string) (Status, error) {
	n, err := m.node(name)
	if err != nil {
		return Status{}, err
	}
	return n.status(), nil
}

func (n *node) status() Status {
	n.mu.Lock()
	s, failure, ended := n.session, n.failure, n.ended
	n.mu.Unlock()
	if s == nil {
		if failure == "" {
			failure = "it is about to be read"
		}
		why := FamilyStatus{Why: []string{failure}}
		return Status{IPv4: why, IPv6: why, Counters: ended}
	}
	now := *s.published.Load()
	now.Counters = ended.Plus(now.Counters)
	return now
}

// publish makes known how things are. s.mu is held.
func (s *session) publish() {
	var status perFamily[FamilyStatus]
	for f := range families {
		status[f] = FamilyStatus{FastPath: s.enabled[f], Routes: s.view.rib.entries.count(f)}
		if !s.trusted {
			status[f].Why = append(status[f].Why, s.why)
		}
		status[f].Why = append(status[f].Why, s.reasons[f]...)
	}
	s.published.Store(&Status{
		Synchronised: s.trusted && s.view.rib.stale == "" && s.dump.part == parts,
		IPv4:         status[family4], IPv6: status[family6],
		Off:        s.view.links.off(s.enabled),
		Neighbours: len(s.view.neighbours.all),
		Counters:   s.countersLocked(),
		LastLag:    s.lag,
		LastDump:   s.dump.took,
		Lost:       s.lost(),
	})
}

func (s *session) lost() []int {
	all := s.n.router.Legs
	if len(s.view.links.ports) == len(all) {
		return nil
	}
	var ports []int
	for index, port := range all {
		if _, there := s.view.links.ports[index]; !there {
			ports = append(ports, port)
		}
	}
	return ports
}

// counters are this session's, which has ended. What was on the fast path then has left it, and is read again.
func (s *session) counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.countersLocked()
	for f := range families {
		if s.enabled[f] {
			c.Left[f]++
		}
	}
	if s.trusted {
		c.Resyncs++
	}
	return c
}

func (s *session) countersLocked() Counters {
	return Counters{Resyncs: s.resyncs, Left: s.left, Events: s.view.events}
}
