package store

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
)

// PutHost stores an agent's description of its host. ErrNoHost means that the host was removed.
func (s *Store) PutHost(ctx context.Context, h hosts.Host) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode host %s: %w", h.Name, err)
	}
	key := s.db.Key("hosts", h.Name)
	known := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	ok, err := s.db.Commit(ctx, []clientv3.Cmp{known}, clientv3.OpPut(key, string(data)))
	if err == nil && !ok {
		return fmt.Errorf("%s: %w", h.Name, ErrNoHost)
	}
	return err
}

// Hosts lists the hosts, sorted by name.
func (s *Store) Hosts(ctx context.Context) ([]HostState, error) {
	return s.readHosts(ctx, "", clientv3.WithPrefix())
}

// HostState gives one host, or ErrNoHost.
func (s *Store) HostState(ctx context.Context, name string) (HostState, error) {
	hosts, err := s.readHosts(ctx, name)
	if err != nil {
		return HostState{}, err
	}
	if len(hosts) == 0 {
		return HostState{}, fmt.Errorf("%s: %w", name, ErrNoHost)
	}
	return hosts[0], nil
}

// readHosts reads descriptions, policies and leases at one revision.
func (s *Store) readHosts(ctx context.Context, name string, opts ...clientv3.OpOption) ([]HostState, error) {
	got, err := s.db.Snapshot(ctx,
		clientv3.OpGet(s.db.Key("hosts", name), opts...),
		clientv3.OpGet(s.db.Key("policies", name), opts...),
		clientv3.OpGet(s.db.Key("alive", name), opts...))
	if err != nil {
		return nil, err
	}
	policies, leases := s.byName("policies", got[1]), s.byName("alive", got[2])
	hosts := make([]HostState, 0, len(got[0]))
	for _, kv := range got[0] {
		var h HostState
		if err := json.Unmarshal(kv.Value, &h.Host); err != nil {
			return nil, fmt.Errorf("decode host %s: %w", kv.Key, err)
		}
		if policy := policies[h.Name]; policy != nil {
			if err := json.Unmarshal(policy.Value, &h.Policy); err != nil {
				return nil, fmt.Errorf("decode the policy of host %s: %w", h.Name, err)
			}
		}
		var a record.Presence
		if lease := leases[h.Name]; lease != nil {
			h.Alive = true
			if err := json.Unmarshal(lease.Value, &a); err != nil {
				return nil, fmt.Errorf("decode the lease of host %s: %w", h.Name, err)
			}
			h.Since, h.Via = a.Since, a.Via
		}
		if absent := s.absences.since(h.Name, kv.ModRevision, h.Alive); !h.Alive {
			h.Since = absent
		}
		hosts = append(hosts, h)
	}
	sort.Slice(hosts, func(i, j int) bool { return hosts[i].Name < hosts[j].Name })
	return hosts, nil
}

func (s *Store) byName(kind string, kvs []*mvccpb.KeyValue) map[string]*mvccpb.KeyValue {
	named := make(map[string]*mvccpb.KeyValue, len(kvs))
	for _, kv := range kvs {
		named[strings.TrimPrefix(string(kv.Key), s.db.Key(kind, ""))] = kv
	}
	return named
}

// absences has when this process first saw hosts without a lease, by its own clock.
type absences struct {
	mu    sync.Mutex
	hosts map[string]absence // guarded by mu
}

// absence is that of one host. A host that registers writes its description in the same transaction: with another
// revision of that, the host was alive meanwhile.
type absence struct {
	revision int64
	since    time.Time
}

func (a *absences) since(host string, revision int64, alive bool) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if alive {
		delete(a.hosts, host)
		return time.Time{}
	}
	have, ok := a.hosts[host]
	if !ok || have.revision != revision {
		if a.hosts == nil {
			a.hosts = map[string]absence{}
		}
		have = absence{revision, time.Now()}
		a.hosts[host] = have
	}
	return have.since
}

// UpdatePolicy edits what the users decided of a host by change, which may be called more than once.
func (s *Store) UpdatePolicy(ctx context.Context, name string, change func(*hosts.Policy) error) error {
	key := s.db.Key("policies", name)
	for {
		got, err := s.db.Get(ctx, key)
		if err != nil {
			return err
		}
		var policy hosts.Policy
		var revision int64
		if len(got.Kvs) > 0 {
			revision = got.Kvs[0].ModRevision
			if err := json.Unmarshal(got.Kvs[0].Value, &policy); err != nil {
				return fmt.Errorf("decode the policy of host %s: %w", name, err)
			}
		}
		if err := change(&policy); err != nil {
			return err
		}
		data, err := json.Marshal(policy)
		if err != nil {
			return err
		}
		ok, err := s.db.Commit(ctx, []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(s.db.Key("hosts", name)), ">", 0),
			clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		}, clientv3.OpPut(key, string(data)))
		if ok || err != nil {
			return err
		}
		if _, err := s.HostState(ctx, name); err != nil {
			return err
		}
	}
}

// DeleteHost removes a host that is not alive, and revokes its certificates. What it may still hold counts no more:
// slices that are being deleted and waited for this host only are gone. ErrHostAlive means that the host is alive.
func (s *Store) DeleteHost(ctx context.Context, name string) error {
	if _, err := s.HostState(ctx, name); err != nil {
		return err
	}
	records, err := s.Slices(ctx)
	if err != nil {
		return err
	}
	ok, err := s.db.Commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(s.db.Key("hosts", name)), ">", 0),
		clientv3.Compare(clientv3.CreateRevision(s.db.Key("alive", name)), "=", 0),
	}, clientv3.OpDelete(s.db.Key("hosts", name)), clientv3.OpDelete(s.db.Key("policies", name)),
		s.trust.Revoke(name))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrHostAlive)
	}
	for _, r := range records {
		if err := s.releaseRemoved(ctx, name, r.Name); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("release network %s for the removed host %s: %w", r.Name, name, err)
		}
	}
	return nil
}

// LeaveHosts removes the record of this machine as a host, which is alone from now on: nothing renews a lease for it,
// and its slices would look lost. As a member it registers again.
func (s *Store) LeaveHosts(ctx context.Context, name string) error {
	_, err := s.db.Commit(ctx, nil, clientv3.OpDelete(s.db.Key("hosts", name)),
		clientv3.OpDelete(s.db.Key("alive", name)))
	return err
}

// CheckMember returns an ErrNoHost or an ErrReplaced where the owner of a certificate is no member of the cluster (any
// more); nil where it is one.
func (s *Store) CheckMember(ctx context.Context, cert *x509.Certificate) error {
	if _, err := s.HostState(ctx, cert.Subject.CommonName); err != nil {
		return err
	}
	return s.trust.Check(ctx, cert)
}
