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

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/pki"
)

// Errors that callers decide on.
var (
	ErrNotFound = errors.New("no such slice")
	ErrGoing    = errors.New("the slice is being removed")
	ErrConflict = errors.New("the slice was changed by somebody else meanwhile")
	ErrFull     = errors.New("no space left for the store")
	ErrNoQuorum = errors.New("the cluster has no quorum")
	ErrRemoved  = errors.New("this server was removed from the cluster")
	ErrCorrupt  = errors.New("what the store has of it cannot be read; remove the slice (pergola down) and apply its file again")
)

// Config says where the store is.
type Config struct {
	Dir string // of the embedded etcd; used when Endpoints is empty
	// Endpoints of an etcd cluster, such as https://10.0.0.1:2379.
	Endpoints []string
	TLS       *tls.Config // for Endpoints
	// Follow means that the endpoints are servers of Pergola's cluster: their list is kept up to date as servers come and go.
	Follow bool
	// Cluster makes the embedded etcd a member of a cluster. Without it, it is alone and listens nowhere.
	Cluster *ClusterConfig
	Prefix  string // of all keys; empty: /pergola/
	LogFile string // gets what the embedded etcd has to say from warnings up; empty: nothing is kept
	Timeout time.Duration
}

// DefaultTimeout bounds every request to etcd.
const DefaultTimeout = 10 * time.Second

// Store is an open store. It is safe for concurrent use.
type Store struct {
	kv       *clientv3.Client
	leases   pb.LeaseClient
	peers    *tls.Config // to ask single servers of the cluster; nil where there is none
	prefix   string
	dir      string   // of the embedded etcd
	initial  []string // Endpoints of the configuration
	timeout  time.Duration
	embedded *embedded // nil with Endpoints
	log      *logger   // of the client, with Endpoints
	cache    specCache
	quorum   *quorum
	absences absences
	life     context.Context // ends with the store
	end      context.CancelFunc
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
	s := &Store{prefix: cfg.Prefix, timeout: cfg.Timeout, quorum: newQuorum()}
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	if len(cfg.Endpoints) > 0 {
		s.initial = cfg.Endpoints
		err = s.openRemote(cfg)
	} else {
		s.dir = cfg.Dir
		err = s.openEmbedded(ctx, cfg)
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("open %s: %w", s.where(), err)
	}
	if err := s.begin(ctx, cfg); err != nil {
		s.Close()
		if len(cfg.Endpoints) > 0 {
			return nil, fmt.Errorf("open %s: %w; check that it runs and that the addresses and certificates are right", s.where(), err)
		}
		return nil, fmt.Errorf("open %s: %w", s.where(), err)
	}
	return s, nil
}

func (s *Store) openRemote(cfg Config) error {
	s.log = quietLogger(cfg.LogFile, nil)
	var err error
	if s.kv, err = clientv3.New(clientConfig(cfg, s.log.Logger)); err != nil {
		s.log.Close()
		return err
	}
	s.leases = clientv3.RetryLeaseClient(s.kv)
	if cfg.Follow {
		s.peers = cfg.TLS
	}
	return nil
}

func (s *Store) openEmbedded(ctx context.Context, cfg Config) error {
	var err error
	if s.embedded, err = startEmbedded(ctx, cfg); err != nil {
		return err
	}
	s.kv = s.embedded.client
	s.leases = adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(s.embedded.etcd.Server))
	if cfg.Cluster == nil {
		return nil
	}
	s.peers = pki.ClientConfig(cfg.Cluster.Identity)
	go s.watchLeader(s.life)
	return nil
}

// begin does what comes first in a store that answers. Without a quorum it comes later: what is known can be read at once.
func (s *Store) begin(ctx context.Context, cfg Config) error {
	orphanAge := time.Hour // another server may be writing parts now
	if s.embedded != nil && cfg.Cluster == nil {
		orphanAge = 0
	}
	if cfg.Cluster != nil {
		if err := s.takePlace(ctx); errors.Is(err, ErrNoQuorum) {
			go s.takePlaceLater(s.life)
		} else if err != nil {
			return err
		}
	}
	if cfg.Follow {
		s.learnEndpoints(ctx)
		go s.followServers(s.life)
	}
	if err := s.sweep(ctx, orphanAge); err != nil && !errors.Is(err, ErrNoQuorum) {
		return err
	}
	return nil
}

func clientConfig(cfg Config, log *zap.Logger) clientv3.Config {
	c := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    clientPing,
		DialKeepAliveTimeout: clientPong,
		Logger:               log,
	}
	// The default waits up to two minutes between attempts: a lease is lost in seconds.
	c.DialOptions = []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: c.DialTimeout,
	})}
	if cfg.Follow { // members of the substrate, behind no proxy
		c.DialOptions = append(c.DialOptions, grpc.WithNoProxy())
	}
	return c
}

// Close ends the store. An embedded etcd is stopped.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.end()
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
		return fmt.Errorf("%s: %w", s.where(), s.embedded.cause())
	default:
		return nil
	}
}

// where names the store in errors.
func (s *Store) where() string {
	if s.dir != "" {
		return "store in " + s.dir
	}
	endpoints := s.initial
	if s.kv != nil {
		endpoints = s.kv.Endpoints()
	}
	return "etcd at " + strings.Join(endpoints, ", ")
}

func (s *Store) key(parts ...string) string { return s.prefix + strings.Join(parts, "/") }

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
	if s.quorum.missing() == nil {
		err := s.request(ctx, "read", func(ctx context.Context) error { return ask(s.withLeader(ctx)) })
		if !errors.Is(err, ErrNoQuorum) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.explain(ctx, "read", ask(ctx, clientv3.WithSerializable()))
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
	return s.explain(ctx, verb, do(ctx))
}

func (s *Store) explain(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	away := isAway(err)
	if away && s.embedded == nil && s.peers != nil {
		s.suspect()
	}
	switch cause := context.Cause(ctx); {
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
