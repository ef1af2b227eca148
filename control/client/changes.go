package client

import (
	"context"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
)

// Changes gives what was changed in nodes while they ran.
func (c *Client) Changes(ctx context.Context, slice string, q api.ChangesQuery) (*api.SliceChanges, error) {
	query := url.Values{"node": q.Nodes}
	if q.Content {
		query.Set("content", "true")
	}
	return get[api.SliceChanges](ctx, c, path("slices", slice, "changes")+"?"+query.Encode())
}
