package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// Slices lists the records, sorted by name, those that are Corrupt included.
func (s *Store) Slices(ctx context.Context) ([]Record, error) {
	got, err := s.db.Get(ctx, s.db.Key("slices", ""), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(got.Kvs))
	for _, kv := range got.Kvs {
		r, err := s.decodeRecord(ctx, kv)
		if err != nil && !r.Corrupt {
			return nil, err
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

// Record gives one record, or ErrNotFound.
func (s *Store) Record(ctx context.Context, name string) (Record, error) {
	r, _, err := s.record(ctx, name)
	return r, err
}

func (s *Store) record(ctx context.Context, name string) (r Record, revision int64, err error) {
	got, err := s.db.Get(ctx, s.db.Key("slices", name))
	if err != nil {
		return Record{}, 0, err
	}
	if len(got.Kvs) == 0 {
		return Record{}, 0, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	r, err = s.decodeRecord(ctx, got.Kvs[0])
	return r, got.Header.Revision, err
}

// decodeRecord decodes a record. With ErrCorrupt, the name and, where it is known, the id are in the record.
func (s *Store) decodeRecord(ctx context.Context, kv *mvccpb.KeyValue) (Record, error) {
	var r Record
	name := strings.TrimPrefix(string(kv.Key), s.db.Key("slices", ""))
	err := json.Unmarshal(kv.Value, &r)
	if err == nil && r.Name != name { // hosts grant paths, and name files, by the name: only the key decides it
		err = fmt.Errorf("it says that it is network %q", r.Name)
	}
	if err != nil {
		id, idErr := s.idOf(ctx, name)
		if idErr != nil {
			return Record{}, idErr
		}
		r = Record{Name: name, ID: id, Corrupt: true, Revision: kv.ModRevision}
		return r, fmt.Errorf("decode record of network %s: %w (%w)", name, ErrCorrupt, err)
	}
	r.Revision = kv.ModRevision
	return r, nil
}

// idOf looks for the id that a slice owns; 0 where there is none.
func (s *Store) idOf(ctx context.Context, name string) (uint16, error) {
	got, err := s.db.Get(ctx, s.db.Key("ids", ""), clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	for _, kv := range got.Kvs {
		id, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), s.db.Key("ids", "")), 10, 16)
		if err == nil && string(kv.Value) == name {
			return uint16(id), nil
		}
	}
	return 0, nil
}

// Slice gives a slice with its record, also while it is being deleted. The slice is shared: callers do not change it.
// With ErrCorrupt, the record has what is still known. One that is being deleted needs no more: then there is no error,
// and the slice has only a name, an id and a generation.
func (s *Store) Slice(ctx context.Context, name string) (*slice.Slice, Record, error) {
	for {
		r, revision, err := s.record(ctx, name)
		if err != nil {
			return nil, r, err
		}
		spec, compacted, err := s.readSpec(ctx, r, revision)
		if errors.Is(err, ErrCorrupt) && r.Deleting {
			return r.NameOnly(), r, nil
		}
		if err != nil {
			return nil, r, err
		}
		if !compacted {
			return spec, r, nil
		}
	}
}

// PutSlice stores a new version of a slice, or with expect 0 a new slice, and sets its ID and Generation. It fails with
// ErrConflict unless expect is the present generation, and the conditions hold. Overrides of nodes, links and ends that
// are no more are removed in the same transaction, and shapes follow the new version but for what was changed by hand.
func (s *Store) PutSlice(ctx context.Context, spec *slice.Slice, expect int64, conditions ...Condition) error {
	prev, err := s.expected(ctx, spec.Name, expect)
	if err != nil {
		return err
	}
	token, err := s.writeSpec(ctx, spec)
	if err != nil {
		return err
	}
	next := record.NewSlice(spec, token, time.Now())
	next.Generation = expect + 1
	for {
		ok, err := s.flip(ctx, prev, &next, spec, conditions)
		if err != nil {
			s.dropSpec(spec.Name, token)
			return err
		}
		if ok {
			break
		}
		// The slice changed, or a condition does not hold any more: a conflict. Or the overrides changed, or
		// the id was taken: try again.
		if prev, err = s.expected(ctx, spec.Name, expect); err == nil {
			err = s.check(ctx, conditions)
		}
		if err != nil {
			s.dropSpec(spec.Name, token)
			return err
		}
	}
	spec.ID, spec.Generation = next.ID, next.Generation
	return nil
}

// expected gives the present record if its generation is the expected one; nil where there is none and expect is 0.
func (s *Store) expected(ctx context.Context, name string, expect int64) (*Record, error) {
	got, err := s.db.Get(ctx, s.db.Key("slices", name))
	if err != nil {
		return nil, err
	}
	if len(got.Kvs) == 0 {
		if expect != 0 {
			return nil, fmt.Errorf("%s: %w", name, ErrConflict)
		}
		return nil, nil
	}
	r, err := s.decodeRecord(ctx, got.Kvs[0])
	switch {
	case err != nil:
		return nil, err
	case r.Deleting:
		return nil, fmt.Errorf("%s: %w", name, ErrDeleting)
	case r.Generation != expect:
		return nil, fmt.Errorf("%s: %w", name, ErrConflict)
	}
	return &r, nil
}

// flip makes next the present version in one transaction. It reports false where a condition did not hold.
func (s *Store) flip(ctx context.Context, prev, next *Record, spec *slice.Slice, also []Condition) (bool, error) {
	conditions, ops := transaction(also)
	next.Hosts = record.HostsOf(spec)
	if prev == nil {
		id, err := s.freeID(ctx)
		if err != nil {
			return false, err
		}
		next.ID = id
		owner := s.db.Key("ids", strconv.Itoa(int(id)))
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(owner), "=", 0))
		ops = append(ops, clientv3.OpPut(owner, next.Name))
	} else {
		next.ID = prev.ID
		next.Hosts = append(next.Hosts, prev.Hosts...)
		slices.Sort(next.Hosts)
		next.Hosts = slices.Compact(next.Hosts)
		ops = append(ops, clientv3.OpDelete(s.db.Key("specs", prev.Name, prev.Token, ""),
			clientv3.WithPrefix()))
	}
	overrides, unchanged, err := s.OverridesUnchanged(ctx, next.Name)
	if err != nil {
		return false, err
	}
	conditions = append(conditions, s.unchanged(next.Name, prev), unchanged.holds)
	rebased, err := s.rebase(ctx, &overrides, prev, spec)
	if err != nil {
		return false, err
	}
	if prune(&overrides, spec) || rebased {
		data, err := json.Marshal(overrides)
		if err != nil {
			return false, err
		}
		ops = append(ops, clientv3.OpPut(s.db.Key("overrides", next.Name), string(data)))
	}
	data, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	ops = append(ops, clientv3.OpPut(s.db.Key("slices", next.Name), string(data)))
	return s.db.Commit(ctx, conditions, ops...)
}

func (s *Store) unchanged(name string, prev *Record) clientv3.Cmp {
	var revision int64
	if prev != nil {
		revision = prev.Revision
	}
	return clientv3.Compare(clientv3.ModRevision(s.db.Key("slices", name)), "=", revision)
}

// freeID finds the lowest id that no slice owns.
func (s *Store) freeID(ctx context.Context) (uint16, error) {
	got, err := s.db.Get(ctx, s.db.Key("ids", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	taken := make(map[string]bool, len(got.Kvs))
	for _, kv := range got.Kvs {
		taken[string(kv.Key)] = true
	}
	for id := 1; id <= slice.MaxID; id++ {
		if !taken[s.db.Key("ids", strconv.Itoa(id))] {
			return uint16(id), nil
		}
	}
	return 0, fmt.Errorf("allocate a network id: all %d are in use", slice.MaxID)
}

// DeleteSlice marks a slice for deletion: from now on nothing is wanted of it.
func (s *Store) DeleteSlice(ctx context.Context, name string) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil && !r.Corrupt {
			return err
		}
		if r.Deleting {
			return nil
		}
		was := r
		r.Deleting, r.Updated = true, time.Now()
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		ok, err := s.db.Commit(ctx, []clientv3.Cmp{s.unchanged(name, &was)},
			clientv3.OpPut(s.db.Key("slices", name), string(data)))
		if ok || err != nil {
			return err
		}
	}
}
