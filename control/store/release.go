package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
)

// ErrWanted means that a host releases a slice of which it is to have a part.
var ErrWanted = errors.New("it is wanted")

// Release says that a host holds nothing of a slice any more: one that is being deleted, or one that has no node on
// this host. When no host is left that may hold something of a slice that is being deleted, its record, name and id are
// free. A host that is lost may hold something until it is removed (DeleteHost).
func (s *Store) Release(ctx context.Context, host, name string) error {
	return s.dropHost(ctx, host, name, func(r Record) error {
		if r.Deleting {
			return nil
		}
		spec, _, err := s.Slice(ctx, name)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
		if err != nil || record.Wants(spec, host) {
			return fmt.Errorf("release network %s: %w", name, ErrWanted)
		}
		return nil
	})
}

// releaseRemoved is Release for a host that was removed.
func (s *Store) releaseRemoved(ctx context.Context, host, name string) error {
	return s.dropHost(ctx, host, name, func(Record) error { return nil })
}

// dropHost removes the host from those that may hold something of a slice. check may refuse; it is called again when
// the record changed.
func (s *Store) dropHost(ctx context.Context, host, name string, check func(Record) error) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil {
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		reports, err := s.Reporters(ctx, name)
		if err != nil {
			return err
		}
		was := r
		mine := slices.Contains(reports, host)
		isHost := func(h string) bool { return h == host }
		reports = slices.DeleteFunc(reports, isHost)
		r.Hosts = slices.DeleteFunc(slices.Clone(r.Hosts), isHost)
		last := r.Deleting && len(reports)+len(r.Hosts) == 0
		if !last && !mine && len(r.Hosts) == len(was.Hosts) {
			return nil
		}
		ops := s.erase(r)
		if !last {
			data, err := json.Marshal(r)
			if err != nil {
				return err
			}
			// The record is written in any case: of two hosts that release at once, one then finds it
			// changed.
			ops = []clientv3.Op{
				clientv3.OpDelete(s.db.Key("status", name, host)),
				clientv3.OpDelete(s.db.Key("linkstate", name, host)),
				clientv3.OpPut(s.db.Key("slices", name), string(data)),
			}
		}
		ok, err := s.db.Commit(ctx, []clientv3.Cmp{s.unchanged(name, &was)}, ops...)
		if err != nil {
			return err
		}
		if ok {
			if last {
				s.specs.drop(name)
			}
			return nil
		}
	}
}

// erase are the operations that remove a slice.
func (s *Store) erase(r Record) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.db.Key("status", r.Name, ""), clientv3.WithPrefix()),
		clientv3.OpDelete(s.db.Key("linkstate", r.Name, ""), clientv3.WithPrefix()),
		clientv3.OpDelete(s.db.Key("slices", r.Name)),
		clientv3.OpDelete(s.db.Key("specs", r.Name, ""), clientv3.WithPrefix()),
		clientv3.OpDelete(s.db.Key("overrides", r.Name)),
		clientv3.OpDelete(s.db.Key("ids", strconv.Itoa(int(r.ID)))),
	}
}

// Reporters are the hosts that have a status of the slice, whether or not it can be read.
func (s *Store) Reporters(ctx context.Context, name string) ([]string, error) {
	got, err := s.db.Get(ctx, s.db.Key("status", name, ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, kv := range got.Kvs {
		hosts = append(hosts, strings.TrimPrefix(string(kv.Key), s.db.Key("status", name, "")))
	}
	return hosts, nil
}
