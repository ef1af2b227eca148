package store

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Servers come and go while agents run. Each says under servers/NAME where it is, which wakes the agents; what then counts is the
// membership that etcd itself keeps.

// followEvery is how often an agent looks who the servers are, if nothing woke it.
const followEvery = 30 * time.Second

// announce makes agents learn of this server. It is a hint: they look by themselves too.
func (s *Store) announce(ctx context.Context) error {
	key, url := s.key("servers", s.embedded.cluster.Name), s.embedded.etcd.Config().AdvertiseClientUrls[0].String()
	got, err := s.get(ctx, key)
	if err != nil || len(got.Kvs) > 0 && string(got.Kvs[0].Value) == url {
		return err
	}
	return s.put(ctx, key, url)
}

// followServers keeps the endpoints up to date, until ctx ends.
func (s *Store) followServers(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		s.followWatch(ctx, s.kv.Watch(watch, s.key("servers", ""), clientv3.WithPrefix(), clientv3.WithCreatedNotify()), tick.C)
		cancel()
		s.pause(ctx)
	}
}

// followWatch looks whenever something changed, and when the watch begins: what changed before it was not seen.
func (s *Store) followWatch(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) {
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
		s.learnEndpoints(ctx)
	}
}

// learnEndpoints asks the cluster who its servers are. Without an answer, those that are known remain.
func (s *Store) learnEndpoints(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_ = s.kv.Sync(ctx)
}

// takePlaceLater takes the server's place in the cluster when the quorum is back.
func (s *Store) takePlaceLater(ctx context.Context) {
	for {
		s.pause(ctx)
		if err := s.takePlace(ctx); ctx.Err() != nil || !errors.Is(err, ErrNoQuorum) {
			return
		}
	}
}

// Endpoints are the addresses of the servers, as far as they are known now: what an agent wants to remember for its next start. There are none
// of an embedded store without a cluster.
func (s *Store) Endpoints(ctx context.Context) []string {
	if s.embedded == nil {
		return s.kv.Endpoints()
	}
	members, err := s.memberList(ctx)
	if err != nil || s.embedded.cluster == nil {
		return nil
	}
	var endpoints []string
	for _, m := range members {
		if !m.IsLearner {
			endpoints = append(endpoints, m.ClientURLs...)
		}
	}
	return endpoints
}
