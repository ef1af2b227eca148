package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
)

// FastPath says what the fast path does for the routers of a slice.
func (c *Client) FastPath(ctx context.Context, slice string) (*api.FastPath, error) {
	return get[api.FastPath](ctx, c, path("slices", slice, "fastpath"))
}

// RouterFastPath says what the fast path does for one router.
func (c *Client) RouterFastPath(ctx context.Context, slice, node string) (*api.RouterFastPath, error) {
	return get[api.RouterFastPath](ctx, c, path("slices", slice, "nodes", node, "fastpath"))
}

// Traffic gives what went through the interfaces of a slice.
func (c *Client) Traffic(ctx context.Context, slice string) (*api.SliceTraffic, error) {
	return get[api.SliceTraffic](ctx, c, path("slices", slice, "traffic"))
}

// Queues gives what went through the queues of links of a slice: of those that are named, or of all.
func (c *Client) Queues(ctx context.Context, slice string, links ...string) (*api.SliceQueues, error) {
	target := path("slices", slice, "queues")
	if len(links) > 0 {
		target += "?" + url.Values{"link": links}.Encode()
	}
	return get[api.SliceQueues](ctx, c, target)
}

// Verify compares the fast path's mirror with the kernel of a router; an empty node means all routers of the slice.
func (c *Client) Verify(ctx context.Context, slice, node string) (*api.Verification, error) {
	target := path("slices", slice, "verify")
	if node != "" {
		target = path("slices", slice, "nodes", node, "verify")
	}
	v := new(api.Verification)
	return v, c.do(ctx, http.MethodPost, target, nil, v)
}
