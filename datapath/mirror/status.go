package mirror

import "time"

// Status is what a user may know of one router's mirror.
type Status struct {
	Synchronised bool
	IPv4, IPv6   FamilyStatus
	Off          []LegStatus // interfaces that are off the fast path, while the router is on it
	Neighbours   int
	Resyncs      int           // how often everything had to be read again off the fast path
	Events       int           // taken over one by one
	LastLag      time.Duration // from the arrival of the last event to the maps
	LastDump     time.Duration // how long the last dump of everything took

	// Lost are ports whose interface was deleted in the node, or moved to another namespace. They are no legs, also
	// if an interface with that ifindex appears: whether it is the same only the owner of the ports knows. He calls
	// Set again when it is.
	Lost []int
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
		ended.IPv4, ended.IPv6 = why, why
		return ended
	}
	now := *s.published.Load()
	now.Resyncs += ended.Resyncs
	now.Events += ended.Events
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
		Resyncs:    s.resyncs,
		Events:     s.view.events,
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

// counters adds this session's to those of earlier ones.
func (s *session) counters(ended Status) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Resyncs: ended.Resyncs + s.resyncs, Events: ended.Events + s.view.events}
}
