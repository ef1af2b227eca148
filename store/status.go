package store

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/slice"
)

// PutStatus stores what a host reports of a slice. It fails with ErrNotFound when the slice is no more.
func (s *Store) PutStatus(ctx context.Context, host string, st slice.Status) error {
	data, err := pack(st)
	if err != nil {
		return fmt.Errorf("encode status of slice %s: %w", st.Slice, err)
	}
	exists := clientv3.Compare(clientv3.CreateRevision(s.key("slices", st.Slice)), ">", 0)
	ok, err := s.commit(ctx, []clientv3.Cmp{exists}, clientv3.OpPut(s.key("status", st.Slice, host), string(data)))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", st.Slice, ErrNotFound)
	}
	return nil
}

// Status gives what the hosts report of a slice, as one; the zero value but for the name where none does yet.
func (s *Store) Status(ctx context.Context, name string) (slice.Status, error) {
	got, err := s.get(ctx, s.key("status", name, ""), clientv3.WithPrefix())
	if err != nil {
		return slice.Status{}, err
	}
	var all []slice.Status
	for _, kv := range got.Kvs {
		var st slice.Status
		if err := unpack(kv.Value, &st); err != nil {
			host := strings.TrimPrefix(string(kv.Key), s.key("status", name, ""))
			return slice.Status{}, fmt.Errorf("decode status of slice %s on host %s: %w", name, host, err)
		}
		all = append(all, st)
	}
	return merge(name, all), nil
}

// merge makes one report of those of several hosts: the oldest generation counts, and all must have settled.
func merge(name string, all []slice.Status) slice.Status {
	sum := slice.Status{Slice: name, Settled: len(all) > 0, Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{}}
	for i, st := range all {
		if i == 0 || st.Generation < sum.Generation {
			sum.Generation = st.Generation
		}
		sum.Settled = sum.Settled && st.Settled
		sum.Done += st.Done
		sum.Total += st.Total
		sum.Errors = append(sum.Errors, st.Errors...)
		for node, ns := range st.Nodes {
			sum.Nodes[node] = ns
		}
		for link, ls := range st.Links {
			if have, ok := sum.Links[link]; ok { // a link between hosts is up where both ends are
				ls.Up = ls.Up && have.Up
				for end, shape := range have.Shapes {
					if ls.Shapes == nil {
						ls.Shapes = map[string]slice.Shape{}
					}
					ls.Shapes[end] = shape
				}
			}
			sum.Links[link] = ls
		}
	}
	return sum
}
