package controller

import (
	"context"
	"errors"
	"sync"

	"github.com/pergola-net/pergola/store"
)

// heldCache remembers what the newest version of each slice holds of hosts, so that placing one slice does not count all the others' nodes.
type heldCache struct {
	mu    sync.Mutex
	known map[string]heldSlice // by the slice's name; guarded by mu
}

type heldSlice struct {
	token string // of the version
	load  map[string]load
}

// of gives what a slice holds, as its record or a newer one has it; nothing where it has gone meanwhile, or is unreadable.
func (h *heldCache) of(ctx context.Context, s *store.Store, r store.Record) (map[string]load, error) {
	h.mu.Lock()
	have, ok := h.known[r.Name]
	h.mu.Unlock()
	if ok && have.token == r.Token {
		return have.load, nil
	}
	spec, now, err := s.Slice(ctx, r.Name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	one := holds(spec)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]heldSlice{}
	}
	h.known[r.Name] = heldSlice{now.Token, one}
	return one, nil
}

// forget drops what is no slice any more.
func (h *heldCache) forget(records []store.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make(map[string]heldSlice, len(records))
	for _, r := range records {
		if have, ok := h.known[r.Name]; ok {
			kept[r.Name] = have
		}
	}
	h.known = kept
}
