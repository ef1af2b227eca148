package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/pergola-net/pergola/control/api"
)

// Hosts lists the machines of the cluster, sorted by name; none where the server is in no cluster.
func (c *Client) Hosts(ctx context.Context) ([]api.Host, error) {
	all, err := get[[]api.Host](ctx, c, "/v1/hosts")
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// Host gives one machine of the cluster.
func (c *Client) Host(ctx context.Context, name string) (*api.Host, error) {
	return get[api.Host](ctx, c, path("hosts", name))
}

// Underlay gives what went through all tunnels of a host.
func (c *Client) Underlay(ctx context.Context, name string) (*api.UnderlayTraffic, error) {
	return get[api.UnderlayTraffic](ctx, c, path("hosts", name, "underlay"))
}

// SetHost changes what the cluster does with a host.
func (c *Client) SetHost(ctx context.Context, name string, patch api.HostPatch) error {
	return c.do(ctx, http.MethodPatch, path("hosts", name), patch, nil)
}

// RemoveHost removes a host that is not alive; with force, also one that nodes are placed on.
func (c *Client) RemoveHost(ctx context.Context, name string, force bool) error {
	return c.do(ctx, http.MethodDelete, path("hosts", name)+"?force="+strconv.FormatBool(force), nil, nil)
}

// Cluster says which servers keep the store, and whether they can decide.
func (c *Client) Cluster(ctx context.Context) (*api.ClusterStatus, error) {
	return get[api.ClusterStatus](ctx, c, "/v1/cluster")
}

// Tokens lists the tokens with which machines may join.
func (c *Client) Tokens(ctx context.Context) ([]api.Token, error) {
	all, err := get[[]api.Token](ctx, c, "/v1/tokens")
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, r api.TokenRequest) (*api.CreatedToken, error) {
	t := new(api.CreatedToken)
	return t, c.do(ctx, http.MethodPost, "/v1/tokens", r, t)
}

// RevokeToken revokes a token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, path("tokens", id), nil, nil)
}
