package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// Overrides gives the overrides of a slice; the zero value where there are none.
func (s *Store) Overrides(ctx context.Context, name string) (slice.Overrides, error) {
	o, _, err := s.overrides(ctx, name)
	return o, err
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

// OverridesUnchanged gives the overrides of a slice, with the condition that they are still these.
func (s *Store) OverridesUnchanged(ctx context.Context, name string) (slice.Overrides, Condition, error) {
	o, revision, err := s.overrides(ctx, name)
	return o, Condition{
		holds:  clientv3.Compare(clientv3.ModRevision(s.db.Key("overrides", name)), "=", revision),
		broken: "network " + name + " was changed by hand",
	}, err
}

// UpdateOverrides edits the overrides of a slice by change. It fails with ErrConflict if the slice or its overrides
// changed meanwhile: what change checked against the slice still holds when the edit is stored. So it is with what it
// checked against all that hosts have left, if it reports that the edit takes more of them (NothingPlaced).
func (s *Store) UpdateOverrides(ctx context.Context, name string,
	change func(*slice.Overrides) (takes bool, err error)) error {
	r, _, err := s.record(ctx, name)
	if err != nil {
		return err
	}
	if r.Deleting {
		return fmt.Errorf("%s: %w", name, ErrDeleting)
	}
	nothingPlaced, err := s.NothingPlaced(ctx)
	if err != nil {
		return err
	}
	o, unchanged, err := s.OverridesUnchanged(ctx, name)
	if err != nil {
		return err
	}
	takes, err := change(&o)
	if err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	conditions := []Condition{unchanged,
		{holds: s.unchanged(name, &r), broken: "network " + name + " has a newer version"}}
	if takes {
		conditions = append(conditions, nothingPlaced)
	}
	compared, ops := transaction(conditions)
	ok, err := s.db.Commit(ctx, compared, append(ops, clientv3.OpPut(s.db.Key("overrides", name), string(data)))...)
	if ok || err != nil {
		return err
	}
	if err := s.check(ctx, conditions); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", name, ErrConflict)
}

// rebase makes the shapes of the overrides hold for a newer version of their slice. It reports whether there is a
// change. Where the older version cannot be read, they stay as they are.
func (s *Store) rebase(ctx context.Context, o *slice.Overrides, prev *Record, spec *slice.Slice) (bool, error) {
	if prev == nil || len(o.Shapes) == 0 {
		return false, nil
	}
	was, _, err := s.readSpec(ctx, *prev, 0)
	if errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	shapes := o.ShapesFor(was, spec)
	changed := !maps.EqualFunc(shapes, o.Shapes, slice.Shape.Equal)
	o.Shapes = shapes
	return changed, nil
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
