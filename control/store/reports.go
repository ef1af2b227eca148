package store

import (
	"context"
	"fmt"
	"maps"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// Generations gives the generation that each host's report of a slice bears, by host.
func (s *Store) Generations(ctx context.Context, name string) (map[string]int64, error) {
	return recall(ctx, s, func() (map[string]int64, error) { return s.readGenerations(ctx, name) }, func(m *memory) (map[string]int64, error) {
		if m.slices[name] == nil {
			return nil, nil
		}
		return maps.Clone(m.slices[name].Generations), nil
	})
}

func (s *Store) readGenerations(ctx context.Context, name string) (map[string]int64, error) {
	reports, revision, err := s.readReports(ctx, name)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int64, len(reports))
	for host := range reports {
		all[host] = reports[host].Generation
	}
	s.memory.heardGenerations(name, all, revision)
	return all, nil
}

// Reports gives what each host reports of a slice, by host.
func (s *Store) Reports(ctx context.Context, name string) (map[string]slice.Status, error) {
	all, _, err := s.readReports(ctx, name)
	return all, err
}

func (s *Store) readReports(ctx context.Context, name string) (all map[string]slice.Status, revision int64, err error) {
	got, err := s.get(ctx, s.key("status", name, ""), clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	all = make(map[string]slice.Status, len(got.Kvs))
	for _, kv := range got.Kvs {
		host := strings.TrimPrefix(string(kv.Key), s.key("status", name, ""))
		var st slice.Status
		if err := unpack(kv.Value, &st); err != nil {
			return nil, 0, fmt.Errorf("decode status of slice %s on host %s: %w", name, host, err)
		}
		all[host] = st
	}
	return all, got.Header.Revision, nil
}
