package client

import (
	"context"

	"github.com/pergola-net/pergola/control/api"
)

// Programs gives the packet programs of a slice's nodes, and what they count.
func (c *Client) Programs(ctx context.Context, slice string) (*api.SlicePrograms, error) {
	return get[api.SlicePrograms](ctx, c, path("slices", slice, "programs"))
}

// Program gives the packet program of one node.
func (c *Client) Program(ctx context.Context, slice, node string) (*api.NodeProgram, error) {
	return get[api.NodeProgram](ctx, c, path("slices", slice, "nodes", node, "program"))
}
