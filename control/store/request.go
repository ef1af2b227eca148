package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// get, snapshot, put, commit and request are the ways to etcd: each is bounded in time and explains its errors.

func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (got *clientv3.GetResponse, err error) {
	err = s.read(ctx, func(ctx context.Context, opt ...clientv3.OpOption) error {
		got, err = s.kv.Get(ctx, key, append(opt, opts...)...)
		return err
	})
	return got, err
}

// snapshot reads several things at one revision.
func (s *Store) snapshot(ctx context.Context, gets ...clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	var results [][]*mvccpb.KeyValue
	err := s.read(ctx, func(ctx context.Context, opts ...clientv3.OpOption) error {
		ops := make([]clientv3.Op, len(gets))
		for i, op := range gets {
			for _, opt := range opts {
				opt(&op)
			}
			ops[i] = op
		}
		r, err := s.kv.Txn(ctx).Then(ops...).Commit()
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

// read asks for what the cluster agrees on, or, while there is no quorum, for what the nearest member knows.
func (s *Store) read(ctx context.Context, ask func(context.Context, ...clientv3.OpOption) error) error {
	if s.quorum.missing() == nil || isLinearizable(ctx) {
		err := s.request(ctx, "read", func(ctx context.Context) error { return ask(s.withLeader(ctx)) })
		if !errors.Is(err, ErrNoQuorum) || isLinearizable(ctx) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.explain(ctx, "read", s.answer(func() error { return ask(ctx, clientv3.WithSerializable()) }))
}

// withLeader makes a server without a leader say so at once.
func (s *Store) withLeader(ctx context.Context) context.Context {
	if s.peers == nil {
		return ctx
	}
	return clientv3.WithRequireLeader(ctx)
}

func (s *Store) put(ctx context.Context, key, value string) error {
	if err := s.room(len(value)); err != nil {
		return err
	}
	return s.request(ctx, "write", func(ctx context.Context) error {
		_, err := s.kv.Put(ctx, key, value)
		return err
	})
}

// commit carries out ops if all conditions hold, and says whether they did.
func (s *Store) commit(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (bool, error) {
	size := 0
	for _, op := range ops {
		size += len(op.ValueBytes())
	}
	if err := s.room(size); err != nil {
		return false, err
	}
	var done bool
	err := s.request(ctx, "write", func(ctx context.Context) error {
		r, err := s.kv.Txn(ctx).If(conditions...).Then(ops...).Commit()
		if err == nil {
			done = r.Succeeded
		}
		return err
	})
	return done, err
}

// request carries out what needs the quorum.
func (s *Store) request(ctx context.Context, verb string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quorum := s.quorum.present()
	defer context.AfterFunc(quorum, func() { cancel(context.Cause(quorum)) })()
	if quorum.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, s.where(), context.Cause(quorum))
	}
	ctx, done := context.WithTimeout(ctx, s.timeout)
	defer done()
	if s.isFollower() {
		defer time.AfterFunc(hush, func() { s.giveUp(ctx, cancel) }).Stop()
	}
	return s.explain(ctx, verb, s.answer(func() error { return do(ctx) }))
}

// answer waits for no etcd in this process that has died: its goroutines are gone with what they had locked, and who asks it would hang.
func (s *Store) answer(ask func() error) error {
	if s.embedded == nil {
		return ask()
	}
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	select {
	case err := <-answered:
		return err
	case <-s.embedded.dead:
		return s.embedded.cause()
	}
}

func (s *Store) explain(ctx context.Context, verb string, err error) error {
	err = s.reasonOf(ctx, verb, err)
	if silent := s.isSilence(err); silent || err == nil {
		s.memory.note(silent)
	}
	return err
}

func (s *Store) reasonOf(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	if why := status.Convert(err).Message(); s.isFollower() && status.Code(err) == codes.PermissionDenied && why != servedToServers {
		return &outcast{why}
	}
	away := isAway(err)
	if away && s.isFollower() {
		if why := s.reach(s.life); why != nil {
			return s.silent(why)
		}
		s.suspect(ctx)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrSilent):
		return cause
	case s.embedded != nil && s.Err() != nil:
		return s.Err()
	case errors.Is(cause, ErrNoQuorum):
		return fmt.Errorf("%s %s: %w", verb, s.where(), cause)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s %s: %w: its quota is used up; remove slices, then compact and defragment etcd", verb, s.where(), ErrFull)
	case away:
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		if missing := s.quorum.missing(); missing != nil {
			return fmt.Errorf("%s %s: %w", verb, s.where(), missing)
		}
		return fmt.Errorf("%s %s: no answer within %v: %w", verb, s.where(), s.timeout, err)
	}
	return fmt.Errorf("%s %s: %w", verb, s.where(), err)
}

// isAway says whether an error means that nobody answered, or nobody who could decide.
func isAway(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return (errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable) && !errors.Is(err, rpctypes.ErrUnhealthy)
}
