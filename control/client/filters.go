package client

import (
	"context"
	"net/http"

	"github.com/pergola-net/pergola/control/api"
)

func filtersOf(slice, node string) string { return path("slices", slice, "nodes", node, "filters") }

// Filters gives the filters of a program node, with their hits.
func (c *Client) Filters(ctx context.Context, slice, node string) (*api.NodeFilters, error) {
	return get[api.NodeFilters](ctx, c, filtersOf(slice, node))
}

// ChangeFilters deletes and inserts filters of a program node: all, or none.
func (c *Client) ChangeFilters(ctx context.Context, slice, node string, change api.FilterChange) error {
	return c.do(ctx, http.MethodPatch, filtersOf(slice, node), change, nil)
}

// ReplaceFilters makes filters, one each, all that a program node has.
func (c *Client) ReplaceFilters(ctx context.Context, slice, node string, filters []string) error {
	return c.do(ctx, http.MethodPut, filtersOf(slice, node), api.FilterList{Filters: filters}, nil)
}
