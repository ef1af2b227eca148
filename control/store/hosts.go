package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/hosts"
)

// Errors that callers decide on.
var (
	ErrNoHost    = errors.New("no such host")
	ErrHostAlive = errors.New("the host is alive: end its agent first")
)

// HostState is what the cluster knows of a host.
type HostState struct {
	hosts.Host
	Policy hosts.Policy
	// Alive means that the host's agent renews its lease.
	Alive bool
	// Since says, of a host that is not alive, from when on this process knows that: by this machine's clock, monotonic reading
	// included, so time.Since(Since) is how long it has been lost at least. Of one that is alive, when it registered by its own clock.
	Since time.Time
}

// alive is what a host's lease holds.
type alive struct {
	Machine string    `json:"machine"`
	Address string    `json:"address,omitempty"`
	Since   time.Time `json:"since"`
}

// PutHost stores what an agent says of its host, which must be known: who was removed registers again.
func (s *Store) PutHost(ctx context.Context, h hosts.Host) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode host %s: %w", h.Name, err)
	}
	key := s.key("hosts", h.Name)
	ok, err := s.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), ">", 0)}, clientv3.OpPut(key, string(data)))
	if err == nil && !ok {
		return fmt.Errorf("%s: %w", h.Name, ErrNoHost)
	}
	return err
}

// Hosts lists the hosts, sorted by name.
func (s *Store) Hosts(ctx context.Context) ([]HostState, error) {
	return recall(ctx, s, func() ([]HostState, error) {
		hosts, err := s.readHosts(ctx, "", clientv3.WithPrefix())
		if err == nil {
			s.memory.heardHosts(hosts)
		}
		return hosts, err
	}, (*memory).hostsLocked)
}

// HostState gives one host, or ErrNoHost.
func (s *Store) HostState(ctx context.Context, name string) (HostState, error) {
	hosts, err := recall(ctx, s, func() ([]HostState, error) { return s.readHosts(ctx, name) }, func(m *memory) ([]HostState, error) {
		hosts, err := m.hostsLocked()
		return slices.DeleteFunc(hosts, func(h HostState) bool { return h.Name != name }), err
	})
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
	got, err := s.snapshot(ctx,
		clientv3.OpGet(s.key("hosts", name), opts...),
		clientv3.OpGet(s.key("policies", name), opts...),
		clientv3.OpGet(s.key("alive", name), opts...))
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
		var a alive
		if lease := leases[h.Name]; lease != nil {
			h.Alive = true
			if err := json.Unmarshal(lease.Value, &a); err != nil {
				return nil, fmt.Errorf("decode the lease of host %s: %w", h.Name, err)
			}
			h.Since = a.Since
		}
		if absent := s.absences.look(h.Name, kv.ModRevision, h.Alive); !h.Alive {
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
		named[strings.TrimPrefix(string(kv.Key), s.key(kind, ""))] = kv
	}
	return named
}

// absences remembers since when hosts were seen without a lease. No clock but this process's counts.
type absences struct {
	mu    sync.Mutex
	hosts map[string]absence // guarded by mu
}

// absence began, as far as this process knows, at since. A host that registers writes its description too, in the same transaction:
// with another revision of that, the host was there meanwhile.
type absence struct {
	revision int64
	since    time.Time
}

func (a *absences) look(host string, revision int64, alive bool) time.Time {
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

// UpdatePolicy lets change edit what the users decided of a host. change may be called more than once.
func (s *Store) UpdatePolicy(ctx context.Context, name string, change func(*hosts.Policy) error) error {
	key := s.key("policies", name)
	for {
		got, err := s.get(ctx, key)
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
		ok, err := s.commit(ctx, []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(s.key("hosts", name)), ">", 0),
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

// DeleteHost forgets a host that is not alive: what it may still hold counts no more, so slices that are going and only waited for it
// are gone. A host that is alive is refused with ErrHostAlive.
func (s *Store) DeleteHost(ctx context.Context, name string) error {
	if _, err := s.HostState(ctx, name); err != nil {
		return err
	}
	records, err := s.Slices(ctx)
	if err != nil {
		return err
	}
	ok, err := s.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(s.key("hosts", name)), ">", 0),
		clientv3.Compare(clientv3.CreateRevision(s.key("alive", name)), "=", 0),
	}, clientv3.OpDelete(s.key("hosts", name)), clientv3.OpDelete(s.key("policies", name)), s.expel(name))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrHostAlive)
	}
	for _, r := range records {
		if err := s.forget(ctx, name, r.Name); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("forget what host %s had of slice %s: %w", name, r.Name, err)
		}
	}
	return nil
}
