package store

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/cache"
	"github.com/pergola-net/pergola/model/slice"
)

// Overrides gives the overrides of a slice; the zero value where there are none.
func (s *Store) Overrides(ctx context.Context, name string) (slice.Overrides, error) {
	return orCached(ctx, s, func() (slice.Overrides, error) {
		o, _, err := s.overrides(ctx, name)
		return o, err
	}, func(c *cache.Cache) (slice.Overrides, error) {
		return decodeOverrides(name, c.Overrides(name))
	})
}

func (s *Store) overrides(ctx context.Context, name string) (o slice.Overrides, revision int64, err error) {
	got, err := s.db.Get(ctx, s.db.Key("overrides", name))
	if err != nil {
		return o, 0, err
	}
	var data []byte
	if len(got.Kvs) > 0 {
		data, revision = got.Kvs[0].Value, got.Kvs[0].ModRevision
	}
	s.offline.PutOverrides(name, data, got.Header.Revision)
	o, err = decodeOverrides(name, data)
	return o, revision, err
}

func decodeOverrides(name string, data []byte) (o slice.Overrides, err error) {
	if len(data) == 0 {
		return o, nil
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("decode overrides of network %s: %w (%w)", name, ErrCorrupt, err)
	}
	return o, nil
}

// UpdateOverrides edits the overrides of a slice by change, which is called again when the slice or its overrides
// changed meanwhile: what it checked against the slice still holds when the edit is stored.
func (s *Store) UpdateOverrides(ctx context.Context, name string, change func(*slice.Overrides) error) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil {
			return err
		}
		if r.Deleting {
			return fmt.Errorf("%s: %w", name, ErrDeleting)
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
		key := s.db.Key("overrides", name)
		ok, err := s.db.Commit(ctx, []clientv3.Cmp{
			s.unchanged(name, &r),
			clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		}, clientv3.OpPut(key, string(data)))
		if ok || err != nil {
			return err
		}
	}
}

// prune removes overrides of what is not in the slice, and pauses of nodes that cannot be paused. It reports whether
// there were any.
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
