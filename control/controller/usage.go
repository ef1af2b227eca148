package controller

import (
	"context"
	"errors"
	"sync"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// usageCache caches what the newest version of each slice uses of hosts, so that placing one slice does not count the
// nodes of all others.
type usageCache struct {
	mu     sync.Mutex
	cached map[string]sliceUsage // by the slice's name; guarded by mu
}

// sliceUsage is what one version of a slice uses.
type sliceUsage struct {
	token    string           // of the version
	of       map[string]usage // by host
	unplaced bool             // it has nodes without a host: it is older than the cluster
	left     bool             // it has nodes that were moved away from hosts which may have released them by now
}

// get gives what a slice uses, by its record or a newer one; nothing if it was deleted meanwhile, or cannot be read.
func (h *usageCache) get(ctx context.Context, s *store.Store, r store.Record) (sliceUsage, error) {
	h.mu.Lock()
	have, ok := h.cached[r.Name]
	h.mu.Unlock()
	if ok && have.token == r.Token {
		return have, nil
	}
	spec, now, err := s.Slice(ctx, r.Name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return sliceUsage{}, nil
	}
	if err != nil {
		return sliceUsage{}, err
	}
	one := sliceUsage{now.Token, usageOf(spec), hasUnplaced(spec), len(leftCounts(spec)) > 0}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cached == nil {
		h.cached = map[string]sliceUsage{}
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

// forget drops slices that no longer exist.
func (h *usageCache) forget(records []store.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make(map[string]sliceUsage, len(records))
	for _, r := range records {
		if have, ok := h.cached[r.Name]; ok {
			kept[r.Name] = have
		}
	}
	h.cached = kept
}
