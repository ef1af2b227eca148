package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// memoryStore is the store of a host that is in no cluster. It is used by one goroutine.
type memoryStore struct {
	wanted   map[string]*plan.Input
	deleting map[string]uint16
	statuses map[string]slice.Status // as they were reported last
	silent   error                   // why it lists no slices; nil: it does
}

func newMemoryStore() *memoryStore {
	return &memoryStore{
		wanted: map[string]*plan.Input{}, deleting: map[string]uint16{}, statuses: map[string]slice.Status{},
	}
}

func (s *memoryStore) Slice(_ context.Context, name string) (*slice.Slice, store.Record, error) {
	if id, deleting := s.deleting[name]; deleting {
		return nil, store.Record{Name: name, ID: id, Deleting: true}, nil
	}
	w := s.wanted[name]
	if w == nil {
		return nil, store.Record{}, store.ErrNotFound
	}
	if w.Corrupt != nil {
		return nil, store.Record{Name: name, ID: w.Spec.ID, Corrupt: true}, w.Corrupt
	}
	return w.Spec, store.Record{Name: name, ID: w.Spec.ID, Generation: w.Spec.Generation}, nil
}

func (s *memoryStore) Slices(context.Context) (all []store.Record, err error) {
	for name, w := range s.wanted {
		all = append(all, store.Record{Name: name, ID: w.Spec.ID, Generation: w.Spec.Generation})
	}
	for name, id := range s.deleting {
		all = append(all, store.Record{Name: name, ID: id, Deleting: true})
	}
	return all, s.silent
}

func (s *memoryStore) Overrides(_ context.Context, name string) (slice.Overrides, error) {
	return s.wanted[name].Overrides, nil
}

func (s *memoryStore) PutStatus(_ context.Context, _ string, st slice.Status) error {
	s.statuses[st.Slice] = st
	return nil
}

func (s *memoryStore) SettledBy(context.Context, string, string) (bool, error) { return true, nil }

func (s *memoryStore) Release(_ context.Context, _, name string) error {
	delete(s.deleting, name)
	delete(s.statuses, name)
	return nil
}

func (s *memoryStore) Watch(context.Context) (<-chan store.Change, error) { return nil, nil }

func (s *memoryStore) Generations(context.Context, string) (map[string]int64, error) { return nil, nil }

func (s *memoryStore) LinkStates(context.Context, string) (map[string]slice.LinkState, error) {
	return nil, nil
}

func (s *memoryStore) PutLinkState(context.Context, string, string, slice.LinkState) error {
	return nil
}

func (s *memoryStore) Hosts(context.Context) ([]store.HostState, error) { return nil, nil }

func (s *memoryStore) PutHost(context.Context, hosts.Host) error { return nil }

func (s *memoryStore) Register(context.Context, hosts.Host, time.Duration) (*store.Lease, error) {
	return nil, errors.New("register: there is no cluster")
}
