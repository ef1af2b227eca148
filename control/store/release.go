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

	"github.com/pergola-net/pergola/model/slice"
)

// ErrWanted means that a host is to have a part of a slice that it releases.
var ErrWanted = errors.New("it is wanted")

// Release says that a host has nothing left of a slice: one that is going, or one that has no node on this host any more. When no host
// is left that may hold something of a slice that is going, its record, name and id are free. A host that is lost may hold something until
// it is removed (DeleteHost).
func (s *Store) Release(ctx context.Context, host, name string) error {
	return s.leave(ctx, host, name, func(r Record) error {
		if r.Going {
			return nil
		}
		spec, _, err := s.Slice(ctx, name)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
		if err != nil || wanted(spec, host) {
			return fmt.Errorf("release slice %s: %w", name, ErrWanted)
		}
		return nil
	})
}

// forget is Release for a host that is no more.
func (s *Store) forget(ctx context.Context, host, name string) error {
	return s.leave(ctx, host, name, func(Record) error { return nil })
}

// leave takes the host off those that may hold something of a slice. check may refuse; it is asked again when the record changed.
func (s *Store) leave(ctx context.Context, host, name string, check func(Record) error) error {
	for {
		r, _, err := s.record(ctx, name)
		if err != nil {
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		reports, err := s.reporters(ctx, name)
		if err != nil {
			return err
		}
		was := r
		mine := slices.Contains(reports, host)
		reports = without(reports, host)
		r.Hosts = without(r.Hosts, host)
		last := r.Going && len(reports)+len(r.Hosts) == 0
		if !last && !mine && len(r.Hosts) == len(was.Hosts) {
			return nil
		}
		ops := s.erase(r)
		if !last {
			data, err := json.Marshal(r)
			if err != nil {
				return err
			}
			// The record is written in any case: of two hosts that leave at once, one notices the other.
			ops = []clientv3.Op{clientv3.OpDelete(s.key("status", name, host)), clientv3.OpPut(s.key("slices", name), string(data))}
		}
		ok, err := s.commit(ctx, []clientv3.Cmp{s.unchanged(name, &was)}, ops...)
		if err != nil {
			return err
		}
		if ok {
			if last {
				s.cache.drop(name)
			}
			return nil
		}
	}
}

// erase is what removes the last of a slice.
func (s *Store) erase(r Record) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.key("status", r.Name, ""), clientv3.WithPrefix()),
		clientv3.OpDelete(s.key("slices", r.Name)),
		clientv3.OpDelete(s.key("specs", r.Name, ""), clientv3.WithPrefix()),
		clientv3.OpDelete(s.key("overrides", r.Name)),
		clientv3.OpDelete(s.key("ids", strconv.Itoa(int(r.ID)))),
	}
}

// reporters are the hosts that have a status of the slice.
func (s *Store) reporters(ctx context.Context, name string) ([]string, error) {
	got, err := s.get(ctx, s.key("status", name, ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, kv := range got.Kvs {
		hosts = append(hosts, strings.TrimPrefix(string(kv.Key), s.key("status", name, "")))
	}
	return hosts, nil
}

// wanted says whether a host has to do something for a slice. Where nodes are not placed, there is one host alone. A switch is where its
// neighbours are.
func wanted(spec *slice.Slice, host string) bool {
	return slices.ContainsFunc(spec.Nodes, func(n slice.Node) bool { return n.Kind != slice.Switch && (n.Host == "" || n.Host == host) })
}

// hostsOf are the hosts on which nodes are placed, sorted.
func hostsOf(spec *slice.Slice) []string {
	var hosts []string
	for i := range spec.Nodes {
		if host := spec.Nodes[i].Host; host != "" {
			hosts = append(hosts, host)
		}
	}
	return union(hosts, nil)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func without(list []string, item string) []string {
	var rest []string
	for _, have := range list {
		if have != item {
			rest = append(rest, have)
		}
	}
	return rest
}
