package lease

import (
	"context"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/pergola-net/pergola/control/store/kv"
)

const (
	// electionTTL is for how long a leader that vanished stays the leader.
	electionTTL = 10 * time.Second
	// electionPause is between two attempts to become the leader.
	electionPause = time.Second
)

// Campaign makes the host a candidate for the leadership of a duty, until ctx ends, and calls lead while it is the
// leader. The context of lead ends with the leadership; when lead returns, the leadership is given up, and the host is
// a candidate again. lead logs its own errors: Campaign returns ctx's error only.
//
// A leader that cannot reach the cluster learns of its end at about the time when another one may begin: for moments
// there may be two. What a leader writes must therefore be conditional, as all that the store writes of slices is; and
// what it reads with the context that it gets is never outdated (see kv.Linearizable).
func Campaign(ctx context.Context, db *kv.DB, duty, host string, lead func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		// The errors are those of an etcd that is away or has no quorum: it will be back.
		_ = campaignOnce(ctx, db, duty, host, lead)
		select {
		case <-ctx.Done():
		case <-time.After(electionPause):
		}
	}
	return ctx.Err()
}

// campaignOnce waits for the leadership, and leads until it ends.
func campaignOnce(ctx context.Context, db *kv.DB, duty, host string, lead func(ctx context.Context) error) error {
	id, err := db.GrantLease(ctx, electionTTL)
	if err != nil {
		return err
	}
	defer db.RevokeLease(id)
	session, err := concurrency.NewSession(db.Etcd(), concurrency.WithLease(id), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	defer session.Orphan() // ends the renewals
	term, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-session.Done():
			end()
		case <-term.Done():
		}
	}()
	if err := concurrency.NewElection(session, db.Key("elections", duty)).Campaign(term, host); err != nil {
		return err
	}
	return lead(kv.Linearizable(term))
}
