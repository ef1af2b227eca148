package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// PutStatus stores what a host reports of a slice. It fails with ErrNotFound when there is no such slice any more.
func (s *Store) PutStatus(ctx context.Context, host string, st slice.Status) error {
	data, err := record.Pack(st)
	if err != nil {
		return fmt.Errorf("encode status of network %s: %w", st.Slice, err)
	}
	exists := clientv3.Compare(clientv3.CreateRevision(s.db.Key("slices", st.Slice)), ">", 0)
	ok, err := s.db.Commit(ctx, []clientv3.Cmp{exists}, clientv3.OpPut(s.db.Key("status", st.Slice, host),
		string(data)))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", st.Slice, ErrNotFound)
	}
	return nil
}

// SettledBy reports whether a host's last report of a slice made the slice settled: this is so for exactly one host.
func (s *Store) SettledBy(ctx context.Context, host, name string) (bool, error) {
	own, err := s.db.Get(ctx, s.db.Key("status", name, host))
	if err != nil || len(own.Kvs) == 0 {
		return false, err
	}
	at := clientv3.WithRev(own.Kvs[0].ModRevision)
	got, err := s.db.Snapshot(ctx,
		clientv3.OpGet(s.db.Key("status", name, ""), clientv3.WithPrefix(), at),
		clientv3.OpGet(s.db.Key("slices", name), at))
	if err != nil || len(got[1]) == 0 {
		return false, err
	}
	r, err := s.decodeRecord(ctx, got[1][0])
	if err != nil {
		return false, err
	}
	settled := map[string]bool{}
	for _, h := range r.Hosts { // a host without a report counts, too
		settled[h] = false
	}
	for _, kv := range got[0] {
		var st slice.Status
		if err := record.Unpack(kv.Value, &st); err != nil {
			return false, fmt.Errorf("decode status %s: %w", kv.Key, err)
		}
		from := strings.TrimPrefix(string(kv.Key), s.db.Key("status", name, ""))
		settled[from] = st.Settled && st.Generation == r.Generation
	}
	for _, done := range settled {
		if !done {
			return false, nil
		}
	}
	return true, nil
}

// Status gives the sum of what the hosts report of a slice; the zero value but for the name where none has reported
// yet. Nodes of hosts that are lost have the phase Lost.
func (s *Store) Status(ctx context.Context, name string) (slice.Status, error) {
	got, err := s.db.Snapshot(ctx,
		clientv3.OpGet(s.db.Key("status", name, ""), clientv3.WithPrefix()),
		clientv3.OpGet(s.db.Key("hosts", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.db.Key("alive", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return slice.Status{}, err
	}
	known, living := s.byName("hosts", got[1]), s.byName("alive", got[2])
	lost := func(host string) bool { return known[host] != nil && living[host] == nil }
	var reports []record.Report
	for _, kv := range got[0] {
		r := record.Report{Host: strings.TrimPrefix(string(kv.Key), s.db.Key("status", name, ""))}
		if err := record.Unpack(kv.Value, &r.Status); err != nil {
			return slice.Status{},
				fmt.Errorf("decode status of network %s on host %s: %w", name, r.Host, err)
		}
		r.Lost = lost(r.Host)
		reports = append(reports, r)
	}
	if len(known) == 0 { // one machine
		return record.Merge(name, nil, reports), nil
	}
	spec, rec, err := s.Slice(ctx, name)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) || rec.Deleting {
		return record.Merge(name, nil, reports), nil
	}
	if err != nil {
		return slice.Status{}, err
	}
	for _, host := range record.HostsOf(spec) { // a host without a report counts, too
		if !slices.ContainsFunc(reports, func(r record.Report) bool { return r.Host == host }) {
			reports = append(reports, record.Report{Host: host, Lost: lost(host)})
		}
	}
	return record.Merge(name, spec, reports), nil
}

// Generations gives the generation that each host's report of a slice bears, by host.
func (s *Store) Generations(ctx context.Context, name string) (map[string]int64, error) {
	reports, err := s.Reports(ctx, name)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int64, len(reports))
	for host := range reports {
		all[host] = reports[host].Generation
	}
	return all, nil
}

// Reports gives what each host reports of a slice, by host.
func (s *Store) Reports(ctx context.Context, name string) (map[string]slice.Status, error) {
	got, err := s.db.Get(ctx, s.db.Key("status", name, ""), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	all := make(map[string]slice.Status, len(got.Kvs))
	for _, kv := range got.Kvs {
		host := strings.TrimPrefix(string(kv.Key), s.db.Key("status", name, ""))
		var st slice.Status
		if err := record.Unpack(kv.Value, &st); err != nil {
			return nil, fmt.Errorf("decode status of network %s on host %s: %w", name, host, err)
		}
		all[host] = st
	}
	return all, nil
}
