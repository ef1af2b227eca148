package store

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// Overrides gives what users changed by hand; the zero value where they changed nothing.
func (s *Store) Overrides(ctx context.Context, name string) (slice.Overrides, error) {
	return recall(ctx, s, func() (slice.Overrides, error) {
		o, _, err := s.overrides(ctx, name)
		return o, err
	}, func(m *memory) (slice.Overrides, error) {
		if m.slices[name] == nil {
			return slice.Overrides{}, nil
		}
		return s.decodeOverrides(name, m.slices[name].Overrides)
	})
}

func (s *Store) overrides(ctx context.Context, name string) (o slice.Overrides, revision int64, err error) {
	got, err := s.get(ctx, s.key("overrides", name))
	if err != nil {
		return o, 0, err
	}
	var data []byte
	if len(got.Kvs) > 0 {
		data, revision = got.Kvs[0].Value, got.Kvs[0].ModRevision
	}
	s.memory.heardOverrides(name, data, got.Header.Revision)
	o, err = s.decodeOverrides(name, data)
	return o, revision, err
}

func (s *Store) decodeOverrides(name string, data []byte) (o slice.Overrides, err error) {
	if len(data) == 0 {
		return o, nil
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("decode overrides of slice %s: %w (%w)", name, ErrCorrupt, err)
	}
	return o, nil
}

// UpdateOverrides lets change edit the overrides of a slice. change may be called more than once: it is called
// again when the slice or its overrides changed meanwhile, so what it checked against the slice still holds when
// the edit is stored.
func (s *Store) UpdateOverrides(ctx context.Context, name string, change func(*slice.Overrides) error) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil {
			return err
		}
		if r.Going {
			return fmt.Errorf("%s: %w", name, ErrGoing)
		}
		o, revision, err := s.overrides(ctx, name)
		if err != nil {
			return err
		}
		if err := change(&o); err != nil {
			return err
		}
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		key := s.key("overrides", name)
		ok, err := s.commit(ctx, []clientv3.Cmp{
			s.unchanged(name, &r),
			clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		}, clientv3.OpPut(key, string(data)))
		if ok || err != nil {
			return err
		}
	}
}

// prune removes overrides of what is not in the slice, or became what cannot be paused, and reports whether there were any.
func prune(o *slice.Overrides, s *slice.Slice) bool {
	nodes, links, ends := map[string]bool{}, map[string]bool{}, map[string]bool{}
	powers := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		nodes[n.Name] = true
		powers[n.Name] = n.HasSliver() || o.Power[n.Name] != slice.PowerFrozen
	}
	for i := range s.Links {
		links[s.Links[i].Name] = true
		for _, e := range s.Links[i].Ends {
			ends[e.String()] = true
		}
	}
	pruned := dropMissing(o.Power, powers)
	pruned = dropMissing(o.Restarts, nodes) || pruned
	pruned = dropMissing(o.Down, links) || pruned
	return dropMissing(o.Shapes, ends) || pruned
}

func dropMissing[V any](m map[string]V, have map[string]bool) (dropped bool) {
	for name := range m {
		if !have[name] {
			delete(m, name)
			dropped = true
		}
	}
	return dropped
}
