// Package store keeps what is wanted of every slice, and what the hosts report of it, in etcd. It is the only
// package that knows etcd. The same code runs over the embedded server of a single machine and over a cluster.
//
// Keys, below the prefix:
//
//	slices/NAME            record: id, generation, where the specification is; JSON
//	specs/NAME/TOKEN/PART  the specification: JSON, zstd, cut into parts
//	ids/ID                 NAME: the slice that owns the id
//	overrides/NAME         slice.Overrides; JSON
//	status/NAME/HOST       slice.Status of one host; JSON, zstd
//
// A specification may be larger than what etcd takes in one request. It is therefore written in parts under a new
// token, which nobody reads, and one transaction makes the record point to it. Readers read all parts at one
// revision.
package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors that callers decide on.
var (
	ErrNotFound = errors.New("no such slice")
	ErrGoing    = errors.New("the slice is being removed")
	ErrConflict = errors.New("the slice was changed by somebody else meanwhile")
	ErrFull     = errors.New("no space left for the store")
	ErrCorrupt  = errors.New("what the store has of it cannot be read; remove the slice (pergola down) and apply its file again")
)

// Config says where the store is.
type Config struct {
	Dir string // of the embedded etcd; used when Endpoints is empty
	// Endpoints of an etcd cluster, such as https://10.0.0.1:2379.
	Endpoints []string
	TLS       *tls.Config // for Endpoints
	Prefix    string      // of all keys; empty: /pergola/
	LogFile   string      // gets what the embedded etcd has to say from warnings up; empty: nothing is kept
	Timeout   time.Duration
}

// DefaultTimeout bounds every request to etcd.
const DefaultTimeout = 10 * time.Second

// Store is an open store. It is safe for concurrent use.
type Store struct {
	kv       *clientv3.Client
	prefix   string
	where    string // for error messages
	timeout  time.Duration
	embedded *embedded // nil with Endpoints
	log      *logger   // of the client, with Endpoints
	cache    specCache
	close    sync.Once
}

// Open opens the store and starts the embedded etcd where no endpoints are given. It returns once the store
// answers, or an error within seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "/pergola/"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	s := &Store{prefix: cfg.Prefix, timeout: cfg.Timeout}
	orphanAge := time.Hour // another server may be writing parts now
	var err error
	if len(cfg.Endpoints) > 0 {
		s.where = "etcd at " + strings.Join(cfg.Endpoints, ", ")
		s.log = quietLogger(cfg.LogFile, nil)
		s.kv, err = dial(cfg, s.log.Logger)
	} else {
		s.where = "store in " + cfg.Dir
		orphanAge = 0
		if s.embedded, err = startEmbedded(ctx, cfg); err == nil {
			s.kv = s.embedded.client
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.where, err)
	}
	if err := s.sweep(ctx, orphanAge); err != nil {
		s.Close()
		if len(cfg.Endpoints) > 0 {
			return nil, fmt.Errorf("open %s: %w; check that it runs and that the addresses and certificates are right", s.where, err)
		}
		return nil, fmt.Errorf("open %s: %w", s.where, err)
	}
	return s, nil
}

func dial(cfg Config, log *zap.Logger) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		Logger:               log,
	})
}

// Close ends the store. An embedded etcd is stopped.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.kv.Close()
		if s.embedded != nil {
			s.embedded.stop()
		} else {
			s.log.Close()
		}
	})
	return nil
}

// Dead is closed when the embedded etcd has given up, because of a full disk for instance; Err says why. Nothing
// works then until the process starts anew.
func (s *Store) Dead() <-chan struct{} {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.dead
}

// Err says why the store is dead; nil while it lives.
func (s *Store) Err() error {
	select {
	case <-s.Dead():
		return fmt.Errorf("%s: %w", s.where, s.embedded.cause())
	default:
		return nil
	}
}

func (s *Store) key(parts ...string) string { return s.prefix + strings.Join(parts, "/") }

// get, put and commit are the three ways to etcd: each is bounded in time and explains its errors.

func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.kv.Get(ctx, key, opts...)
	return r, s.explain(ctx, "read", err)
}

func (s *Store) put(ctx context.Context, key, value string) error {
	if err := s.room(len(value)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.kv.Put(ctx, key, value)
	return s.explain(ctx, "write", err)
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
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.kv.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err != nil {
		return false, s.explain(ctx, "write", err)
	}
	return r.Succeeded, nil
}

func (s *Store) explain(ctx context.Context, verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.embedded != nil && s.Err() != nil:
		return s.Err()
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s %s: %w: its quota is used up; remove slices, then compact and defragment etcd", verb, s.where, ErrFull)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded, status.Code(err) == codes.Unavailable:
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		return fmt.Errorf("%s %s: no answer within %v: %w", verb, s.where, s.timeout, err)
	}
	return fmt.Errorf("%s %s: %w", verb, s.where, err)
}

// Dir of the embedded store is made private: what is in it are the users' files.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}
