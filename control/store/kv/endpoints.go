package kv

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Servers come and go while agents run. Each writes its address to servers/NAME, which wakes the agents; the list that
// counts is the membership that etcd itself keeps.

// followEvery is how often an agent asks for the list of servers if nothing woke it.
const followEvery = 30 * time.Second

// announce writes where this server is. It is a hint: agents also look by themselves.
func (d *DB) announce(ctx context.Context) error {
	key, url := d.Key("servers", d.embedded.cluster.Name), d.embedded.etcd.Config().AdvertiseClientUrls[0].String()
	got, err := d.Get(ctx, key)
	if err != nil || len(got.Kvs) > 0 && string(got.Kvs[0].Value) == url {
		return err
	}
	return d.Put(ctx, key, url)
}

// followServers keeps the endpoints up to date, until ctx ends.
func (d *DB) followServers(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	for ctx.Err() == nil {
		watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		d.followWatch(ctx, d.etcd.Watch(watch, d.Key("servers", ""), options...), tick.C)
		cancel()
		d.Pause(ctx)
	}
}

// followWatch asks for the servers whenever something changed, and when the watch begins: earlier changes are not in
// it.
func (d *DB) followWatch(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-tick:
		}
		d.syncEndpoints(ctx)
	}
}

// syncEndpoints asks the cluster for its servers. Without an answer, the endpoints stay as they are.
func (d *DB) syncEndpoints(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_ = d.etcd.Sync(ctx)
}

// Pause waits a second, and then for the quorum: it is called before a watch is begun again, and without a quorum
// nothing changes.
func (d *DB) Pause(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if d.quorum.missing() == nil {
			return
		}
	}
}

// registerMemberLater registers this server as a member when the quorum is back.
func (d *DB) registerMemberLater(ctx context.Context) {
	for {
		d.Pause(ctx)
		if err := d.registerMember(ctx); ctx.Err() != nil || !errors.Is(err, ErrNoQuorum) {
			return
		}
	}
}
