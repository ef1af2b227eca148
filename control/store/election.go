package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	// electionTTL is how long a leader that vanished stays the leader.
	electionTTL = 10 // s
	// electionPause is between two attempts to become the leader.
	electionPause = time.Second
	// farewell bounds what is said to etcd when it is no longer needed.
	farewell = 2 * time.Second
)

// Campaign makes the host stand for the leadership of a duty, until ctx ends, and calls lead while it is the leader. The context of lead
// ends with the leadership; when lead returns, the leadership is given up, and stood for again. An error of lead is reported to its own
// log: Campaign returns ctx's error alone.
//
// A leader that cannot reach the cluster learns of its end at about the time when another one may begin: for moments there may be two.
// What a leader writes must therefore be conditional, as all that the store writes of slices is; and what it reads with the context that it is
// given is never old (see Linearizable).
func (s *Store) Campaign(ctx context.Context, name, host string, lead func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		// What fails here is that etcd is away or lost its quorum: it will be back.
		_ = s.reign(ctx, name, host, lead)
		select {
		case <-ctx.Done():
		case <-time.After(electionPause):
		}
	}
	return ctx.Err()
}

// reign waits for the leadership once, and has it until it ends.
func (s *Store) reign(ctx context.Context, name, host string, lead func(ctx context.Context) error) error {
	asked, cancel := context.WithTimeout(ctx, s.timeout)
	lease, err := s.kv.Grant(asked, electionTTL)
	cancel()
	if err != nil {
		return err
	}
	defer s.revoke(lease.ID)
	session, err := concurrency.NewSession(s.kv, concurrency.WithLease(lease.ID), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	defer session.Orphan() // keeps it alive no longer
	term, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-session.Done():
			end()
		case <-term.Done():
		}
	}()
	if err := concurrency.NewElection(session, s.key("elections", name)).Campaign(term, host); err != nil {
		return err
	}
	return lead(Linearizable(term))
}

// revoke ends a lease now rather than when its time is over; of its own, whatever happens to the caller.
func (s *Store) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_, _ = s.kv.Revoke(ctx, id)
}

// ErrNoLeader says that nobody leads now.
var ErrNoLeader = errors.New("nobody leads now")

// Leader gives the host that leads a duty, or ErrNoLeader.
func (s *Store) Leader(ctx context.Context, name string) (host string, err error) {
	got, err := s.get(ctx, s.key("elections", name, ""), clientv3.WithFirstCreate()...)
	if err != nil {
		return "", err
	}
	if len(got.Kvs) == 0 {
		return "", fmt.Errorf("%s: %w", name, ErrNoLeader)
	}
	return string(got.Kvs[0].Value), nil
}
