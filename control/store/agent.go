package store

import (
	"context"
	"time"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// ForAgent is all that a host's agent needs of the store: its host's lease and description, what is wanted of slices,
// what changes, and where to put its reports.
type ForAgent interface {
	Register(ctx context.Context, h hosts.Host, ttl time.Duration) (*Lease, error)
	PutHost(ctx context.Context, h hosts.Host) error
	Hosts(ctx context.Context) ([]HostState, error)

	Watch(ctx context.Context) (<-chan Change, error)
	Slices(ctx context.Context) ([]Record, error)
	Slice(ctx context.Context, name string) (*slice.Slice, Record, error)
	Overrides(ctx context.Context, name string) (slice.Overrides, error)
	Generations(ctx context.Context, name string) (map[string]int64, error)
	LinkStates(ctx context.Context, name string) (map[string]slice.LinkState, error)

	PutStatus(ctx context.Context, host string, st slice.Status) error
	PutLinkState(ctx context.Context, host, name string, is slice.LinkState) error
	SettledBy(ctx context.Context, host, name string) (bool, error)
	Release(ctx context.Context, host, name string) error
}

var _ ForAgent = (*Store)(nil)
