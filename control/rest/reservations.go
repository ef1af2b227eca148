package rest

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

type reservationsInput struct {
	Host string `query:"host" doc:"Name of the host; none: all."`
}

type releaseInput struct {
	NodeInput
	Body api.ReservationRelease
}

func (s *server) registerReservations(a huma.API) {
	huma.Get(a, "/v1/reservations", s.reservations,
		describe("list-reservations", "List what nodes have reserved of machines"))
	huma.Post(a, "/v1/slices/{slice}/nodes/{node}/release", func(ctx context.Context, in *releaseInput) (*struct{},
		error) {
		return nil, problem(s.Controller.Release(ctx, in.Slice, in.Node, in.Body))
	}, describe("release-reservations", "Take back what a node has reserved while it ran"), noContent)
}

// reservations answers from the store: what hosts offer, and what the slices that are placed there reserve.
func (s *server) reservations(ctx context.Context, in *reservationsInput) (*body[[]api.HostReservations], error) {
	if in.Host != "" {
		if _, err := s.hostState(ctx, in.Host); err != nil {
			return nil, problem(err)
		}
	}
	all, err := s.Controller.Reservations(ctx, s.Agent.Reservable())
	if err != nil {
		return nil, problem(err)
	}
	some := make([]api.HostReservations, 0, len(all))
	for _, h := range all {
		if in.Host == "" || h.Host == in.Host {
			some = append(some, h)
		}
	}
	return &body[[]api.HostReservations]{some}, nil
}
