package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/kv"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
)

// Etcd keeps leases in etcd.
type Etcd struct {
	DB *kv.DB
	// Via is the server with which agents have their session; empty: a host has its lease by itself.
	Via string
}

var _ Keeper = Etcd{}

// Claim implements Keeper.
func (e Etcd) Claim(ctx context.Context, h hosts.Host, ttl time.Duration, again bool) (int64, error) {
	id, err := e.DB.GrantLease(ctx, ttl)
	if err != nil {
		return 0, err
	}
	if err := e.claim(ctx, h, id, again); err != nil {
		e.DB.RevokeLease(id)
		return 0, err
	}
	return int64(id), nil
}

// claim binds the host's name to the lease, unless it is another machine's.
func (e Etcd) claim(ctx context.Context, h hosts.Host, id clientv3.LeaseID, again bool) error {
	aliveKey, hostKey := e.DB.Key("alive", h.Name), e.DB.Key("hosts", h.Name)
	for {
		got, err := e.DB.Snapshot(ctx, clientv3.OpGet(aliveKey), clientv3.OpGet(hostKey))
		if err != nil {
			return err
		}
		var revision int64
		if len(got[0]) > 0 {
			revision = got[0][0].ModRevision
			var other record.Presence
			if err := json.Unmarshal(got[0][0].Value, &other); err == nil && other.Machine != h.Machine {
				return fmt.Errorf("%w: another machine (%s) is alive as host %s: start one of "+
					"them under another name", record.ErrNameTaken, other.Address, h.Name)
			}
		}
		var stored []byte
		if len(got[1]) > 0 {
			stored = got[1][0].Value
		}
		described, err := description(h, stored, again)
		if err != nil {
			return err
		}
		presence, err := json.Marshal(record.Presence{Machine: h.Machine, Address: h.Address.String(),
			Since: time.Now(), Via: e.Via})
		if err != nil {
			return err
		}
		ok, err := e.DB.Commit(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(aliveKey), "=", revision)},
			clientv3.OpPut(aliveKey, string(presence), clientv3.WithLease(id)),
			clientv3.OpPut(hostKey, string(described)))
		if ok || err != nil {
			return err
		}
	}
}

// description is what to store of the host: of one that registers again, what is stored, which is newer than what it
// registered with. ErrNoHost means that it registers again and was removed meanwhile.
func description(h hosts.Host, stored []byte, again bool) ([]byte, error) {
	if again && stored == nil {
		return nil, fmt.Errorf("%w: host %s was removed from the cluster: let it join again", record.ErrNoHost,
			h.Name)
	}
	var have hosts.Host
	if again && json.Unmarshal(stored, &have) == nil && have.Machine == h.Machine {
		return stored, nil
	}
	return json.Marshal(h)
}

// Renew implements Keeper. The lease has to be that of the host: who renews it may be another machine.
func (e Etcd) Renew(ctx context.Context, host string, id int64) error {
	if e.Via != "" {
		if err := e.pass(ctx, host, id); err != nil {
			return err
		}
	}
	err := e.DB.Request(ctx, "renew a lease in", func(ctx context.Context) error {
		return e.DB.KeepAlive(ctx, clientv3.LeaseID(id))
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return ErrEnded
	}
	return err
}

// Attach writes down that a host that is alive has its session with this server now.
func (e Etcd) Attach(ctx context.Context, host string) error {
	if err := e.pass(ctx, host, 0); !errors.Is(err, ErrEnded) {
		return err
	}
	return nil // it is written when the host is alive
}

// pass checks that a lease is that of a host (0: whichever it has), and writes down that the host has its session with
// this server now.
func (e Etcd) pass(ctx context.Context, host string, id int64) error {
	ctx = kv.Linearizable(ctx) // a server that was cut off may know an earlier lease
	key := e.DB.Key("alive", host)
	for {
		got, err := e.DB.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(got.Kvs) == 0 || id != 0 && got.Kvs[0].Lease != id {
			return ErrEnded
		}
		var p record.Presence
		if err := json.Unmarshal(got.Kvs[0].Value, &p); err != nil || p.Via == e.Via {
			return err
		}
		p.Via = e.Via
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		same := clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)
		ok, err := e.DB.Commit(ctx, []clientv3.Cmp{same},
			clientv3.OpPut(key, string(data), clientv3.WithLease(clientv3.LeaseID(got.Kvs[0].Lease))))
		if ok || err != nil {
			return err
		}
	}
}

// End implements Keeper.
func (e Etcd) End(ctx context.Context, host string, id int64) error {
	if e.Via != "" {
		if err := e.pass(ctx, host, id); errors.Is(err, ErrEnded) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return e.DB.Request(ctx, "write", func(ctx context.Context) error {
		_, err := e.DB.Etcd().Revoke(ctx, clientv3.LeaseID(id))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
}
