package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Get, Snapshot, Put, Commit and Request are the ways to etcd: each is bounded in time and explains its errors.

// Get reads one key, or several with options.
func (d *DB) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (got *clientv3.GetResponse, err error) {
	err = d.read(ctx, func(ctx context.Context, opt ...clientv3.OpOption) error {
		got, err = d.etcd.Get(ctx, key, append(opt, opts...)...)
		return err
	})
	return got, err
}

// Snapshot reads several things at one revision, and gives one list for each.
func (d *DB) Snapshot(ctx context.Context, gets ...clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	var results [][]*mvccpb.KeyValue
	err := d.read(ctx, func(ctx context.Context, opts ...clientv3.OpOption) error {
		ops := make([]clientv3.Op, len(gets))
		for i, op := range gets {
			for _, opt := range opts {
				opt(&op)
			}
			ops[i] = op
		}
		r, err := d.etcd.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		results = results[:0]
		for _, one := range r.Responses {
			results = append(results, one.GetResponseRange().Kvs)
		}
		return nil
	})
	return results, err
}

// read asks for what the cluster agrees on, or, while there is no quorum, for what the nearest member has.
func (d *DB) read(ctx context.Context, ask func(context.Context, ...clientv3.OpOption) error) error {
	if d.quorum.missing() == nil || IsLinearizable(ctx) {
		err := d.Request(ctx, "read", func(ctx context.Context) error { return ask(d.withLeader(ctx)) })
		if !errors.Is(err, ErrNoQuorum) || IsLinearizable(ctx) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	err := d.unlessDead(func() error { return ask(ctx, clientv3.WithSerializable()) })
	return d.explain(ctx, "read", err)
}

// withLeader makes a server without a leader say so at once.
func (d *DB) withLeader(ctx context.Context) context.Context {
	if d.servers == nil {
		return ctx
	}
	return clientv3.WithRequireLeader(ctx)
}

// Put writes one key.
func (d *DB) Put(ctx context.Context, key, value string) error {
	if err := d.CheckSpace(len(value)); err != nil {
		return err
	}
	return d.Request(ctx, "write", func(ctx context.Context) error {
		_, err := d.etcd.Put(ctx, key, value)
		return err
	})
}

// Commit carries out ops in one transaction if all conditions hold, and reports whether they did.
func (d *DB) Commit(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (bool, error) {
	size := 0
	for _, op := range ops {
		size += len(op.ValueBytes())
	}
	if err := d.CheckSpace(size); err != nil {
		return false, err
	}
	var done bool
	err := d.Request(ctx, "write", func(ctx context.Context) error {
		r, err := d.etcd.Txn(ctx).If(conditions...).Then(ops...).Commit()
		if err == nil {
			done = r.Succeeded
		}
		return err
	})
	return done, err
}

// Request carries out what needs the quorum. The verb begins the errors.
func (d *DB) Request(ctx context.Context, verb string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quorum := d.quorum.present()
	defer context.AfterFunc(quorum, func() { cancel(context.Cause(quorum)) })()
	if quorum.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, d, context.Cause(quorum))
	}
	ctx, done := context.WithTimeout(ctx, d.timeout)
	defer done()
	return d.explain(ctx, verb, d.unlessDead(func() error { return do(ctx) }))
}

// unlessDead asks, and stops waiting when the etcd in this process has died: its goroutines ended with locks held, so a
// request to it might never return.
func (d *DB) unlessDead(ask func() error) error {
	if d.embedded == nil {
		return ask()
	}
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	select {
	case err := <-answered:
		return err
	case <-d.embedded.dead:
		return d.embedded.cause()
	}
}

// GrantLease makes a lease of at least ttl; etcd counts whole seconds.
func (d *DB) GrantLease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	var id clientv3.LeaseID
	err := d.Request(ctx, "write", func(ctx context.Context) error {
		granted, err := d.etcd.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		if err == nil {
			id = granted.ID
		}
		return err
	})
	return id, err
}

// KeepAlive renews a lease once; rpctypes.ErrLeaseNotFound means that it has ended. The client's own KeepAliveOnce
// tries again without a pause while no server answers.
func (d *DB) KeepAlive(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := d.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return rpctypes.Error(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return rpctypes.Error(err)
	}
	r, err := stream.Recv()
	if err != nil {
		return rpctypes.Error(err)
	}
	if r.TTL <= 0 {
		return rpctypes.ErrLeaseNotFound
	}
	return nil
}

// RevokeLease ends a lease now instead of at the end of its time. It is bounded in time, and errors are dropped: the
// lease ends anyhow. It uses no context of the caller, which may have ended.
func (d *DB) RevokeLease(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, _ = d.etcd.Revoke(ctx, id)
}

// closeTimeout bounds requests to an etcd that is no longer needed.
const closeTimeout = 2 * time.Second

// explain makes a request's error one that callers understand.
func (d *DB) explain(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case d.embedded != nil && d.Err() != nil:
		return d.Err()
	case errors.Is(cause, ErrNoQuorum):
		return fmt.Errorf("%s %s: %w", verb, d, cause)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s %s: %w: its quota is used up; remove networks, then compact and defragment etcd",
			verb, d, ErrFull)
	case isNoAnswer(err):
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		if missing := d.quorum.missing(); missing != nil {
			return fmt.Errorf("%s %s: %w", verb, d, missing)
		}
		return fmt.Errorf("%s %s: no answer within %v: %w", verb, d, d.timeout, err)
	}
	return fmt.Errorf("%s %s: %w", verb, d, err)
}

// isNoAnswer reports whether an error means that no server answered, or none that could decide.
func isNoAnswer(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	away := errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable
	return away && !errors.Is(err, rpctypes.ErrUnhealthy)
}
