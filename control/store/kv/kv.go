// Package kv opens the etcd that holds the store, embedded in this process or remote, and carries out its requests:
// bounded in time, with errors that name the cause. Embedded members form a cluster; they listen for each other and for
// agents, and check who may do what (see guard). This package and its siblings below control/store are the only ones
// that import etcd.
package kv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"github.com/pergola-net/pergola/control/store/record"
)

// Errors that callers decide on.
var (
	ErrFull     = errors.New("no space left for the store")
	ErrNoQuorum = errors.New("the cluster has no quorum")
	ErrRemoved  = errors.New("this server was removed from the cluster")
	ErrNotAlone = errors.New("was started as if it were alone")
)

// Config says where the store is.
type Config struct {
	Dir string // of the embedded etcd; used when Endpoints is empty
	// Endpoints of an etcd cluster, such as https://10.0.0.1:2379.
	Endpoints []string
	TLS       *tls.Config // for Endpoints
	// Cluster makes the embedded etcd a member of a cluster. Without it, it is alone and listens unused.
	Cluster *ClusterConfig
	Prefix  record.Prefix // of all keys; empty: record.DefaultPrefix
	LogFile string        // gets warnings and errors of etcd; empty: they are dropped
	Timeout time.Duration // of a request; 0: DefaultTimeout
}

// DefaultTimeout bounds every request to etcd.
const DefaultTimeout = 10 * time.Second

// DB is an open etcd. It is safe for concurrent use.
type DB struct {
	etcd     *clientv3.Client
	leases   pb.LeaseClient
	servers  *tls.Config // to ask single servers of the cluster; nil where there is no cluster
	prefix   record.Prefix
	dir      string   // of the embedded etcd
	initial  []string // Endpoints of the configuration
	timeout  time.Duration
	embedded *embedded // nil with Endpoints
	log      *logger   // of the client, with Endpoints
	quorum   *quorum

	life  context.Context // ends when the DB is closed
	end   context.CancelFunc
	close sync.Once
}

// Open connects to the endpoints, or starts the embedded etcd where there are none. It returns once etcd answers, or an
// error within seconds.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = record.DefaultPrefix
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	d := &DB{prefix: cfg.Prefix, timeout: cfg.Timeout, quorum: newQuorum()}
	d.life, d.end = context.WithCancel(context.Background())
	var err error
	if len(cfg.Endpoints) > 0 {
		d.initial = cfg.Endpoints
		err = d.openRemote(cfg)
	} else {
		d.dir = cfg.Dir
		err = d.openEmbedded(ctx, cfg)
	}
	if err != nil {
		d.end()
		return nil, fmt.Errorf("open %s: %w", d, err)
	}
	if err := d.begin(ctx, cfg); err != nil {
		d.Close()
		return nil, d.OpenError(err)
	}
	return d, nil
}

// OpenError explains an error of the first requests to a DB that was just opened.
func (d *DB) OpenError(err error) error {
	if d.embedded == nil && !errors.Is(err, record.ErrNoHost) {
		return fmt.Errorf("open %s: %w; check that it runs and that the addresses and certificates are right",
			d, err)
	}
	return fmt.Errorf("open %s: %w", d, err)
}

func (d *DB) openRemote(cfg Config) error {
	d.log = newLogger(cfg.LogFile, nil)
	var err error
	if d.etcd, err = clientv3.New(clientConfig(cfg, d.log.Logger)); err != nil {
		d.log.Close()
		return err
	}
	d.leases = clientv3.RetryLeaseClient(d.etcd)
	return nil
}

func (d *DB) openEmbedded(ctx context.Context, cfg Config) error {
	var err error
	if d.embedded, err = startEmbedded(ctx, cfg); err != nil {
		return err
	}
	d.etcd = d.embedded.client
	d.leases = adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(d.embedded.etcd.Server))
	if cfg.Cluster == nil {
		return nil
	}
	d.servers = pki.ClientConfig(cfg.Cluster.Identity)
	go d.watchLeader(d.life)
	return nil
}

// begin registers this server as a member. Without a quorum, that is done later: what this server has can be read at
// once.
func (d *DB) begin(ctx context.Context, cfg Config) error {
	if cfg.Cluster != nil {
		if err := d.registerMember(ctx); errors.Is(err, ErrNoQuorum) {
			go d.registerMemberLater(d.life)
		} else if err != nil {
			return err
		}
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
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
		},
		MinConnectTimeout: c.DialTimeout,
	})}
	return c
}

// Close ends all connections. An embedded etcd is stopped.
func (d *DB) Close() error {
	d.close.Do(func() {
		d.end()
		d.etcd.Close()
		if d.embedded != nil {
			d.embedded.stop()
		} else {
			d.log.Close()
		}
	})
	return nil
}

// Dead is closed when the embedded etcd has given up, because of a full disk for instance; Err says why. Nothing
// works then until the process starts anew.
func (d *DB) Dead() <-chan struct{} {
	if d.embedded == nil {
		return nil
	}
	return d.embedded.dead
}

// Err says why the embedded etcd has given up; nil while it works.
func (d *DB) Err() error {
	select {
	case <-d.Dead():
		return fmt.Errorf("%s: %w", d, d.embedded.cause())
	default:
		return nil
	}
}

// String names the store in errors.
func (d *DB) String() string {
	if d.dir != "" {
		return "store in " + d.dir
	}
	endpoints := d.initial
	if d.etcd != nil {
		endpoints = d.etcd.Endpoints()
	}
	return "etcd at " + strings.Join(endpoints, ", ")
}

// Context ends when the DB is closed.
func (d *DB) Context() context.Context { return d.life }

// Key joins the parts of a key below the prefix.
func (d *DB) Key(parts ...string) string { return d.prefix.Key(parts...) }

// Prefix is where all keys begin.
func (d *DB) Prefix() record.Prefix { return d.prefix }

// Etcd is the client, for what Get, Put and Commit do not cover. Its errors are not explained (see Request).
func (d *DB) Etcd() *clientv3.Client { return d.etcd }

// Private reports whether no other process uses this etcd: it is embedded, and in no cluster.
func (d *DB) Private() bool { return d.embedded != nil && d.embedded.cluster == nil }
