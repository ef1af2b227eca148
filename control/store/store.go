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
//	hosts/HOST             substrate.Host, as its agent describes it; JSON
//	policies/HOST          substrate.Policy, as users decided; JSON
//	alive/HOST             which machine it is; bound to the lease that its agent renews (see Lease)
//	elections/DUTY/LEASE   who stands for the leadership of a duty
//	servers/HOST           where agents reach the server, a hint (see follow.go)
//
// Beside the prefix, where agents of other hosts do not get (see roles.go), lie the certificate authority and the grants of tokens.
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
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/pergola-net/pergola/control/pki"
)

// Errors that callers decide on.
var (
	ErrNotFound = errors.New("no such slice")
	ErrGoing    = errors.New("the slice is being removed")
	ErrConflict = errors.New("the slice was changed by somebody else meanwhile")
	ErrFull     = errors.New("no space left for the store")
	ErrNoQuorum = errors.New("the cluster has no quorum")
	ErrSilent   = errors.New("the servers of the cluster do not answer")
	ErrRemoved  = errors.New("this server was removed from the cluster")
	ErrNotAlone = errors.New("was started as if it were alone")
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
	// Patient makes Open return before the endpoints answered, for who has duties without them: an agent ends what may be started elsewhere.
	Patient bool
	// Memory is a directory for what the servers of Endpoints say, so that who reads it with Recalling has it while none of them answers; empty:
	// nothing is remembered.
	Memory string
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
	memory   *memory // nil: nothing is remembered
	quorum   *quorum
	absences absences
	life     context.Context // ends with the store
	end      context.CancelFunc
	close    sync.Once
}

// Open opens the store and starts the embedded etcd where no endpoints are given. It returns once the store
// answers (but see Config.Patient), or an error within seconds.
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
		if len(cfg.Endpoints) > 0 && !errors.Is(err, ErrNoHost) {
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
	if cfg.Memory != "" {
		s.memory = openMemory(cfg.Memory, s.log.Logger)
	}
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
		go s.followServers(s.life)
	}
	if cfg.Patient {
		return nil
	}
	if cfg.Follow {
		s.learnEndpoints(ctx)
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
