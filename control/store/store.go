// Package store keeps what is wanted of every slice, and what the hosts report of it. The same code runs over the
// embedded etcd of a single machine, over the etcds of a cluster's servers, and over an external etcd.
//
// Its rooms, below it, from the bottom up:
//
//	record  keys, types and encoding of values; pure
//	kv      etcd: embedded or remote, requests, members, quorum, listeners
//	lease   which hosts are alive; election of a leader
//	trust   certificate authority, tokens, admission of hosts
//
// This package reads and writes slices, overrides, reports and hosts by them. Nothing above it imports etcd.
//
// A specification may be larger than what etcd takes in one request. It is therefore written in parts under a new
// token, which no reader knows, and one transaction makes the record point to it. Readers read all parts at one
// revision.
package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store/kv"
	"github.com/pergola-net/pergola/control/store/lease"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/control/store/trust"
	"github.com/pergola-net/pergola/model/hosts"
)

// The types of the rooms below that callers use.
type (
	// Config says where the store is.
	Config = kv.Config
	// ClusterConfig makes the embedded etcd a member of a cluster.
	ClusterConfig = kv.ClusterConfig
	// Member is a server of the cluster.
	Member = kv.Member
	// Record is what the store holds of a slice beside its specification.
	Record = record.Slice
	// HostState is what the store holds of a host.
	HostState = record.Host
	// Lease says that a host is alive, for as long as it is renewed.
	Lease = lease.Lease
	// LeaseKeeper keeps the leases of hosts.
	LeaseKeeper = lease.Keeper
)

// Errors that callers decide on.
var (
	ErrNotFound = record.ErrNotFound
	ErrDeleting = record.ErrDeleting
	ErrConflict = record.ErrConflict
	ErrCorrupt  = record.ErrCorrupt
	// ErrUnread means that something is not known, because the store could not be read. It is no answer to the
	// question.
	ErrUnread = errors.New("the store could not be read")

	ErrNoHost    = record.ErrNoHost
	ErrNameTaken = record.ErrNameTaken
	ErrReplaced  = record.ErrReplaced
	ErrHostAlive = errors.New("the host is alive: end its agent first")

	ErrFull        = kv.ErrFull
	ErrNoQuorum    = kv.ErrNoQuorum
	ErrUnreachable = record.ErrUnreachable
	ErrRemoved     = kv.ErrRemoved
	ErrNotAlone    = kv.ErrNotAlone
	ErrNoMember    = kv.ErrNoMember

	ErrNoGrant     = trust.ErrNoGrant
	ErrNoAuthority = trust.ErrNoAuthority
	ErrAuthority   = trust.ErrAuthority
)

// Store is an open store. It is safe for concurrent use.
type Store struct {
	db       *kv.DB
	trust    *trust.Trust
	specs    specCache
	decoding sync.Mutex // held while a specification is read that is in no cache
	absences absences
}

// Open opens the store and starts the embedded etcd where no endpoints are given. It returns once the store answers, or
// an error within seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	db, err := kv.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := New(db)
	orphanAge := time.Hour // another server may be writing parts now
	if db.Private() {
		orphanAge = 0
	}
	if err := s.collectGarbage(ctx, orphanAge); err != nil && !errors.Is(err, ErrNoQuorum) {
		db.Close()
		return nil, db.OpenError(err)
	}
	return s, nil
}

// New makes a store of an open etcd, which Close closes.
func New(db *kv.DB) *Store { return &Store{db: db, trust: trust.New(db)} }

// Close ends the store. An embedded etcd is stopped.
func (s *Store) Close() error { return s.db.Close() }

// Dead is closed when the embedded etcd has given up, because of a full disk for instance; Err says why. Nothing works
// then until the process starts anew.
func (s *Store) Dead() <-chan struct{} { return s.db.Dead() }

// Err says why the store is dead; nil while it lives.
func (s *Store) Err() error { return s.db.Err() }

// Trust is the part of the store that holds the cluster's trust.
func (s *Store) Trust() *trust.Trust { return s.trust }

// Members lists the servers of the cluster, sorted by name, and asks each whether it answers. It works without a
// quorum.
func (s *Store) Members(ctx context.Context) ([]Member, error) { return s.db.Members(ctx) }

// AddMember adds a server and returns the members that it needs to start (see kv.DB.AddMember).
func (s *Store) AddMember(ctx context.Context, name, peerURL string) (initial map[string]string, err error) {
	return s.db.AddMember(ctx, name, peerURL)
}

// RemoveMember removes a server from the cluster, whether it runs or was lost.
func (s *Store) RemoveMember(ctx context.Context, name string) error {
	return s.db.RemoveMember(ctx, name)
}

// Register makes a host known and alive (see lease.Register).
func (s *Store) Register(ctx context.Context, h hosts.Host, ttl time.Duration) (*Lease, error) {
	return lease.Register(ctx, s.db.Context(), lease.Etcd{DB: s.db}, h, ttl)
}

// Leases keeps the leases of hosts whose agents have a session with a server.
func (s *Store) Leases(server string) LeaseKeeper { return lease.Etcd{DB: s.db, Via: server} }

// Attach writes down that a host's agent has its session with a server now.
func (s *Store) Attach(ctx context.Context, host, server string) error {
	return lease.Etcd{DB: s.db, Via: server}.Attach(ctx, host)
}

// Campaign makes a host a candidate for the leadership of a duty (see lease.Campaign).
func (s *Store) Campaign(ctx context.Context, duty, host string, lead func(ctx context.Context) error) error {
	return lease.Campaign(ctx, s.db, duty, host, lead)
}

// Linearizable makes reads with the context return what the cluster agrees on now: without a quorum they fail with
// ErrNoQuorum instead of returning what one server has. It is for callers that act on what is absent.
func Linearizable(ctx context.Context) context.Context { return kv.Linearizable(ctx) }

// MustAgree reports whether a context comes from Linearizable.
func MustAgree(ctx context.Context) bool { return kv.IsLinearizable(ctx) }
