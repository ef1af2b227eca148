package server

import (
	"context"
	"sync/atomic"

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/rest"
)

// A Decider decides for all hosts what nodes of this host ask for while they run. Errors are *api.Problem.
type Decider interface {
	// SetLink changes how a link treats frames, as `pergola link set` does.
	SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error
	// Reserve changes what a node has reserved.
	Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error
}

// remoteDecider asks a server.
type remoteDecider struct{ near *agents.Client }

// SetLink implements Decider.
func (d remoteDecider) SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error {
	return rest.Problem(d.near.SetLink(ctx, slice, link, patch))
}

// Reserve implements Decider.
func (d remoteDecider) Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error {
	return rest.Problem(d.near.Reserve(ctx, slice, node, change))
}

// decider asks the controller, which is made after the agent.
type decider struct {
	controller atomic.Pointer[controller.Controller]
}

// SetLink implements Decider.
func (d *decider) SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error {
	return rest.Problem(d.controller.Load().SetLink(ctx, slice, link, patch))
}

// Reserve implements Decider.
func (d *decider) Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error {
	return rest.Problem(d.controller.Load().Reserve(ctx, slice, node, change))
}
