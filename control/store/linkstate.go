package store

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// PutLinkState stores what is unreserved at links of a host's routers. It fails with ErrNotFound when there is no such
// slice any more.
func (s *Store) PutLinkState(ctx context.Context, host, name string, is slice.LinkState) error {
	data, err := record.Pack(is)
	if err != nil {
		return fmt.Errorf("encode the link state of network %s: %w", name, err)
	}
	exists := clientv3.Compare(clientv3.CreateRevision(s.db.Key("slices", name)), ">", 0)
	ok, err := s.db.Commit(ctx, []clientv3.Cmp{exists},
		clientv3.OpPut(s.db.Key("linkstate", name, host), string(data)))
	if err == nil && !ok {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return err
}

// LinkStates gives what each host says of the links of its routers of a slice, by host.
func (s *Store) LinkStates(ctx context.Context, name string) (map[string]slice.LinkState, error) {
	prefix := s.db.Key("linkstate", name, "")
	got, err := s.db.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	all := make(map[string]slice.LinkState, len(got.Kvs))
	for _, kv := range got.Kvs {
		host := strings.TrimPrefix(string(kv.Key), prefix)
		var is slice.LinkState
		if err := record.Unpack(kv.Value, &is); err != nil {
			return nil, fmt.Errorf("decode the link state of network %s on host %s: %w", name, host, err)
		}
		all[host] = is
	}
	return all, nil
}
