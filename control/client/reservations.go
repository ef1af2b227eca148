package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
)

// Reservations lists what nodes have reserved of machines: of one, or of all where host is empty.
func (c *Client) Reservations(ctx context.Context, host string) ([]api.HostReservations, error) {
	where := "/v1/reservations"
	if host != "" {
		where += "?" + url.Values{"host": {host}}.Encode()
	}
	all, err := get[[]api.HostReservations](ctx, c, where)
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// Release takes back what a node has reserved while it ran: all of it, or nothing.
func (c *Client) Release(ctx context.Context, slice, node string, what api.ReservationRelease) error {
	return c.do(ctx, http.MethodPost, path("slices", slice, "nodes", node, "release"), what, nil)
}
