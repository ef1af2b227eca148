package agents

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/lease"
	"github.com/pergola-net/pergola/model/hosts"
)

// Register implements store.ForAgent.
func (c *Client) Register(ctx context.Context, h hosts.Host, ttl time.Duration) (*store.Lease, error) {
	return lease.Register(ctx, c.life, keeper{c}, h, ttl)
}

// keeper keeps the host's lease at a server.
type keeper struct{ *Client }

// Claim implements lease.Keeper.
func (k keeper) Claim(ctx context.Context, h hosts.Host, ttl time.Duration, again bool) (int64, error) {
	var got leaseID
	err := k.ask(ctx, http.MethodPost, "lease", claim{h, ttl, again}, &got)
	k.dropIfLate(ctx)
	return got.ID, err
}

// dropIfLate leaves a server that did not answer in time.
func (k keeper) dropIfLate(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		k.cfg.Session.Drop()
	}
}

// Renew implements lease.Keeper. A server that does not answer in time is left for another one.
func (k keeper) Renew(ctx context.Context, _ string, id int64) error {
	err := k.ask(ctx, http.MethodPut, "lease/"+strconv.FormatInt(id, 10), nil, nil)
	k.dropIfLate(ctx)
	return err
}

// End implements lease.Keeper.
func (k keeper) End(ctx context.Context, _ string, id int64) error {
	return k.ask(ctx, http.MethodDelete, "lease/"+strconv.FormatInt(id, 10), nil, nil)
}
