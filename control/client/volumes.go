package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
)

// Volumes lists the volumes of nodes: those of a slice, or of all.
func (c *Client) Volumes(ctx context.Context, slice string) (*api.Volumes, error) {
	return get[api.Volumes](ctx, c, path("volumes")+"?"+url.Values{"slice": {slice}}.Encode())
}

// RemoveVolumes removes the volumes of a slice that is gone, or of all of these, and gives what it has removed.
func (c *Client) RemoveVolumes(ctx context.Context, slice string) (*api.Volumes, error) {
	out := new(api.Volumes)
	err := c.do(ctx, http.MethodDelete, path("volumes")+"?"+url.Values{"slice": {slice}}.Encode(), nil, out)
	return out, err
}
