package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// LSPs says how the label-switched paths of a slice are: those that are named, or all.
func (c *Client) LSPs(ctx context.Context, slice string, lsps ...string) (*api.SliceLSPs, error) {
	target := path("slices", slice, "lsps")
	if len(lsps) > 0 {
		target += "?" + url.Values{"lsp": lsps}.Encode()
	}
	return get[api.SliceLSPs](ctx, c, target)
}

// AddLSP adds a label-switched path to a slice that runs, and gives it as it is stored.
func (c *Client) AddLSP(ctx context.Context, name string, l topology.LSP) (added slice.LSP, err error) {
	err = c.do(ctx, http.MethodPost, path("slices", name, "lsps"), l, &added)
	return added, err
}

// SetLSP changes a label-switched path.
func (c *Client) SetLSP(ctx context.Context, slice, lsp string, patch api.LSPPatch) error {
	return c.do(ctx, http.MethodPatch, path("slices", slice, "lsps", lsp), patch, nil)
}

// RerouteLSP has the first router of a label-switched path look for its way again.
func (c *Client) RerouteLSP(ctx context.Context, slice, lsp string) error {
	return c.do(ctx, http.MethodPost, path("slices", slice, "lsps", lsp, "reroute"), nil, nil)
}

// RemoveLSP removes a label-switched path that was added to a slice while it ran.
func (c *Client) RemoveLSP(ctx context.Context, slice, lsp string) error {
	return c.do(ctx, http.MethodDelete, path("slices", slice, "lsps", lsp), nil, nil)
}
