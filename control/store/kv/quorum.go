package kv

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// quorum tells whether the cluster can decide. While it cannot, reads are answered from what the nearest member has,
// which may be old, and changes are refused at once instead of after a timeout.
type quorum struct {
	mu   sync.Mutex
	ctx  context.Context // ends, with ErrNoQuorum as cause, when the quorum is lost; guarded by mu
	lose context.CancelCauseFunc
}

// Linearizable makes reads with the context return what the cluster agrees on now: without a quorum they fail with
// ErrNoQuorum instead of returning what one server has. It is for callers that act on what is absent.
func Linearizable(ctx context.Context) context.Context {
	return context.WithValue(ctx, linearizable{}, true)
}

type linearizable struct{}

// IsLinearizable reports whether a context comes from Linearizable.
func IsLinearizable(ctx context.Context) bool { return ctx.Value(linearizable{}) != nil }

const (
	// leaderlessElections is for how many elections a cluster may be without a leader.
	leaderlessElections = 2
	pollInterval        = 100 * time.Millisecond
	countInterval       = 2 * time.Second
)

func newQuorum() *quorum {
	q := &quorum{}
	q.regain()
	return q
}

// present gives a context that ends when the quorum is lost.
func (q *quorum) present() context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ctx
}

// missing says why changes do not work; nil while they do.
func (q *quorum) missing() error { return context.Cause(q.present()) }

func (q *quorum) lost(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil { // lost already: the numbers in the error may differ
		q.ctx, q.lose = context.WithCancelCause(context.Background())
	}
	q.lose(err)
}

func (q *quorum) regain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil || q.ctx.Err() != nil {
		q.ctx, q.lose = context.WithCancelCause(context.Background())
	}
}

// watchLeader keeps the quorum of a member of a cluster up to date, until ctx ends.
func (d *DB) watchLeader(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	server := d.embedded.etcd.Server
	grace := leaderlessElections * d.embedded.cluster.electionTime()
	seen, counted := time.Now(), time.Time{}
	if server.Leader() == 0 { // it waited for one while it started
		seen = time.Time{}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch now := time.Now(); {
		case server.Leader() != 0:
			seen = now
			d.quorum.regain()
		case now.Sub(seen) > grace && now.Sub(counted) > countInterval:
			c := d.countServers(ctx)
			counted = time.Now()
			if server.Leader() == 0 {
				d.quorum.lost(c.err())
			}
		}
	}
}

// serverCount says how many of a cluster's servers answer.
type serverCount struct {
	members, answers int
}

func (c serverCount) err() error {
	return fmt.Errorf("%w (%d of %d servers answer): reading works, changes do not", ErrNoQuorum,
		c.answers, c.members)
}

// countServers asks all servers.
func (d *DB) countServers(ctx context.Context) serverCount {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	members, err := d.Members(ctx)
	if err != nil {
		return serverCount{}
	}
	c := serverCount{members: len(members)}
	for _, m := range members {
		if m.Learner {
			c.members--
			continue
		}
		if m.Answers {
			c.answers++
		}
	}
	return c
}
