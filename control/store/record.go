package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// Record is what the store knows of a slice without reading its specification.
type Record struct {
	Name       string   `json:"name"`
	ID         uint16   `json:"id"`
	Generation int64    `json:"generation"`
	Token      string   `json:"token"` // of the specification's parts
	Nodes      int      `json:"nodes"`
	Links      int      `json:"links"`
	Blobs      []string `json:"blobs,omitempty"` // archives that the specification names
	// Hosts are those that may hold something of the slice: its nodes were placed there, and they have not released it since.
	Hosts   []string  `json:"hosts,omitempty"`
	Updated time.Time `json:"updated"`
	// Going means that nothing is wanted of the slice any more; its name and id stay taken until every host has
	// released it.
	Going bool `json:"going,omitempty"`

	// Corrupt means that the record cannot be decoded: it has nothing but its name, and its id where that is known.
	Corrupt bool `json:"-"`

	revision int64 // of the record's key: what transactions compare
}

// Slices lists the records, sorted by name, those that are Corrupt included.
func (s *Store) Slices(ctx context.Context) ([]Record, error) {
	return recall(ctx, s, func() ([]Record, error) { return s.readSlices(ctx) }, (*memory).recordsLocked)
}

func (s *Store) readSlices(ctx context.Context) ([]Record, error) {
	got, err := s.get(ctx, s.key("slices", ""), clientv3.WithPrefix())
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
	sort.Slice(records, func(i, j int) bool { return records[i].Name < records[j].Name })
	s.memory.heardNames(records, got.Header.Revision)
	return records, nil
}

// Record gives one record, or ErrNotFound.
func (s *Store) Record(ctx context.Context, name string) (Record, error) {
	r, _, err := s.record(ctx, name)
	return r, err
}

func (s *Store) record(ctx context.Context, name string) (r Record, revision int64, err error) {
	got, err := s.get(ctx, s.key("slices", name))
	if err != nil {
		return Record{}, 0, err
	}
	if len(got.Kvs) == 0 {
		s.memory.heardGone(name, got.Header.Revision)
		return Record{}, 0, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	r, err = s.decodeRecord(ctx, got.Kvs[0])
	return r, got.Header.Revision, err
}

// decodeRecord fails with ErrCorrupt, and then still says whose record it is.
func (s *Store) decodeRecord(ctx context.Context, kv *mvccpb.KeyValue) (Record, error) {
	var r Record
	name := strings.TrimPrefix(string(kv.Key), s.key("slices", ""))
	err := json.Unmarshal(kv.Value, &r)
	if err == nil && r.Name != name { // by its name a slice has what hosts consented to, and files: it is nobody's to say but the key's
		err = fmt.Errorf("it says that it is slice %q", r.Name)
	}
	if err != nil {
		id, idErr := s.idOf(ctx, name)
		if idErr != nil {
			return Record{}, idErr
		}
		return Record{Name: name, ID: id, Corrupt: true, revision: kv.ModRevision}, fmt.Errorf("decode record of slice %s: %w (%w)", name, ErrCorrupt, err)
	}
	r.revision = kv.ModRevision
	return r, nil
}

// idOf looks for the id that a slice owns; 0 where there is none.
func (s *Store) idOf(ctx context.Context, name string) (uint16, error) {
	got, err := s.get(ctx, s.key("ids", ""), clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	for _, kv := range got.Kvs {
		id, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), s.key("ids", "")), 10, 16)
		if err == nil && string(kv.Value) == name {
			return uint16(id), nil
		}
	}
	return 0, nil
}

// Slice gives a slice with its record, also while it is Going. The slice is shared: callers do not change it. With
// ErrCorrupt, the record says what is still known; one that is Going needs no more, so then there is no error, and the slice has a
// name and an id alone.
func (s *Store) Slice(ctx context.Context, name string) (*slice.Slice, Record, error) {
	got, err := recall(ctx, s, func() (told, error) { return s.readSlice(ctx, name) }, func(m *memory) (told, error) { return m.sliceLocked(name) })
	return got.spec, got.record, err
}

func (s *Store) readSlice(ctx context.Context, name string) (told, error) {
	for {
		r, revision, err := s.record(ctx, name)
		if errors.Is(err, ErrCorrupt) {
			s.memory.heardSlice(r, nil, revision)
		}
		if err != nil {
			return told{nil, r}, err
		}
		spec, compacted, err := s.readSpec(ctx, r, revision)
		if errors.Is(err, ErrCorrupt) {
			s.memory.heardSlice(r, nil, revision)
		}
		if errors.Is(err, ErrCorrupt) && r.Going {
			return told{nameOnly(r), r}, nil
		}
		if err != nil {
			return told{nil, r}, err
		}
		if !compacted {
			s.memory.heardSlice(r, spec, revision)
			return told{spec, r}, nil
		}
	}
}

// nameOnly is all that is left of a slice that cannot be read.
func nameOnly(r Record) *slice.Slice {
	return &slice.Slice{Name: r.Name, ID: r.ID, Generation: r.Generation}
}

// PutSlice stores a new version of a slice, or with expect 0 a new slice, and sets its ID and Generation. It fails
// with ErrConflict unless expect is the present generation. Overrides of nodes, links and ends that are no more go
// in the same transaction. It fails with ErrConflict, too, when one of the hosts that were lost is alive again: what may be taken from a
// host that is lost may run again on one that is not.
func (s *Store) PutSlice(ctx context.Context, spec *slice.Slice, expect int64, lost ...string) error {
	prev, err := s.expected(ctx, spec.Name, expect)
	if err != nil {
		return err
	}
	token, err := s.writeSpec(ctx, spec)
	if err != nil {
		return err
	}
	next := newRecord(spec, token, time.Now())
	next.Generation = expect + 1
	for {
		ok, err := s.flip(ctx, prev, &next, spec, lost)
		if err != nil {
			s.dropSpec(spec.Name, token)
			return err
		}
		if ok {
			break
		}
		// Either somebody changed the slice, or a host is back, which is a conflict, or the overrides changed, or the id was taken: try again.
		if prev, err = s.expected(ctx, spec.Name, expect); err == nil {
			err = s.stillLost(ctx, lost)
		}
		if err != nil {
			s.dropSpec(spec.Name, token)
			return err
		}
	}
	spec.ID, spec.Generation = next.ID, next.Generation
	return nil
}

// expected gives the present record, nil where there is none, if its generation is the expected one.
func (s *Store) expected(ctx context.Context, name string, expect int64) (*Record, error) {
	got, err := s.get(ctx, s.key("slices", name))
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
	case r.Going:
		return nil, fmt.Errorf("%s: %w", name, ErrGoing)
	case r.Generation != expect:
		return nil, fmt.Errorf("%s: %w", name, ErrConflict)
	}
	return &r, nil
}

// stillLost fails with ErrConflict when one of the hosts is alive.
func (s *Store) stillLost(ctx context.Context, hosts []string) error {
	for _, host := range hosts {
		got, err := s.get(ctx, s.key("alive", host), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(got.Kvs) > 0 {
			return fmt.Errorf("host %s is alive again: %w", host, ErrConflict)
		}
	}
	return nil
}

// flip makes next the present version in one transaction. It reports false where something moved meanwhile.
func (s *Store) flip(ctx context.Context, prev, next *Record, spec *slice.Slice, lost []string) (bool, error) {
	var conditions []clientv3.Cmp
	var ops []clientv3.Op
	next.Hosts = hostsOf(spec)
	if prev == nil {
		id, err := s.freeID(ctx)
		if err != nil {
			return false, err
		}
		next.ID = id
		owner := s.key("ids", strconv.Itoa(int(id)))
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(owner), "=", 0))
		ops = append(ops, clientv3.OpPut(owner, next.Name))
	} else {
		next.ID = prev.ID
		next.Hosts = union(next.Hosts, prev.Hosts)
		ops = append(ops, clientv3.OpDelete(s.key("specs", prev.Name, prev.Token, ""), clientv3.WithPrefix()))
	}
	overrides, revision, err := s.overrides(ctx, next.Name)
	if err != nil {
		return false, err
	}
	conditions = append(conditions,
		s.unchanged(next.Name, prev),
		clientv3.Compare(clientv3.ModRevision(s.key("overrides", next.Name)), "=", revision))
	for _, host := range lost {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.key("alive", host)), "=", 0))
	}
	if prune(&overrides, spec) {
		data, err := json.Marshal(overrides)
		if err != nil {
			return false, err
		}
		ops = append(ops, clientv3.OpPut(s.key("overrides", next.Name), string(data)))
	}
	data, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	ops = append(ops, clientv3.OpPut(s.key("slices", next.Name), string(data)))
	return s.commit(ctx, conditions, ops...)
}

func (s *Store) unchanged(name string, prev *Record) clientv3.Cmp {
	var revision int64
	if prev != nil {
		revision = prev.revision
	}
	return clientv3.Compare(clientv3.ModRevision(s.key("slices", name)), "=", revision)
}

// freeID finds the lowest id that no slice owns.
func (s *Store) freeID(ctx context.Context) (uint16, error) {
	got, err := s.get(ctx, s.key("ids", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	taken := make(map[string]bool, len(got.Kvs))
	for _, kv := range got.Kvs {
		taken[string(kv.Key)] = true
	}
	for id := 1; id <= slice.MaxID; id++ {
		if !taken[s.key("ids", strconv.Itoa(id))] {
			return uint16(id), nil
		}
	}
	return 0, fmt.Errorf("allocate a slice id: all %d are in use", slice.MaxID)
}

func newRecord(spec *slice.Slice, token string, now time.Time) Record {
	r := Record{Name: spec.Name, Token: token, Nodes: len(spec.Nodes), Links: len(spec.Links), Updated: now}
	seen := map[string]bool{}
	for i := range spec.Nodes {
		fs := spec.Nodes[i].Rootfs
		if fs.Kind == slice.RootfsTar && !seen[fs.Ref] {
			seen[fs.Ref] = true
			r.Blobs = append(r.Blobs, fs.Ref)
		}
	}
	return r
}

// DeleteSlice marks a slice as going: from now on nothing is wanted of it.
func (s *Store) DeleteSlice(ctx context.Context, name string) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil && !r.Corrupt {
			return err
		}
		if r.Going {
			return nil
		}
		was := r
		r.Going, r.Updated = true, time.Now()
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		ok, err := s.commit(ctx, []clientv3.Cmp{s.unchanged(name, &was)}, clientv3.OpPut(s.key("slices", name), string(data)))
		if ok || err != nil {
			return err
		}
	}
}
