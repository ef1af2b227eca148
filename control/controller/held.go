package controller

import (
	"context"
	"errors"
	"sync"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// heldCache caches what the newest version of each slice holds of hosts, so that placing one slice does not count the
// nodes of all others.
type heldCache struct {
	mu     sync.Mutex
	cached map[string]holding // by the slice's name; guarded by mu
}

// holding is what one version of a slice holds.
type holding struct {
	token    string          // of the version
	of       map[string]load // by host
	unplaced bool            // it has nodes without a host: it is from the time before the cluster
	left     bool            // it has nodes that were moved away from hosts which may have let go of them by now
}

// get gives what a slice holds, as its record or a newer one has it; nothing where it has gone meanwhile, or is
// unreadable.
func (h *heldCache) get(ctx context.Context, s *store.Store, r store.Record) (holding, error) {
	h.mu.Lock()
	have, ok := h.cached[r.Name]
	h.mu.Unlock()
	if ok && have.token == r.Token {
		return have, nil
	}
	spec, now, err := s.Slice(ctx, r.Name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return holding{}, nil
	}
	if err != nil {
		return holding{}, err
	}
	one := holding{now.Token, holds(spec), hasUnplaced(spec), len(leftCounts(spec)) > 0}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cached == nil {
		h.cached = map[string]holding{}
	}
	h.cached[r.Name] = one
	return one, nil
}

// leftCounts counts the hosts that nodes were moved away from and that may still run them, by node.
func leftCounts(s *slice.Slice) map[string]int {
	counts := map[string]int{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; len(n.Left) > 0 {
			counts[n.Name] = len(n.Left)
		}
	}
	return counts
}

// forget drops what is no slice any more.
func (h *heldCache) forget(records []store.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make(map[string]holding, len(records))
	for _, r := range records {
		if have, ok := h.cached[r.Name]; ok {
			kept[r.Name] = have
		}
	}
	h.cached = kept
}
