package drive

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// setOutside connects a sliver with the outside.
func (d *Pass) setOutside(ctx context.Context, id sliver.ID, o plan.Outside) error {
	gateway := d.Machine.Outside()
	if gateway == nil {
		return fmt.Errorf("connect %s with the outside: %w", id.Node, machine.ErrNoOutside)
	}
	pid, err := d.pid(id)
	if err != nil {
		return fmt.Errorf("connect %s with the outside: %w", id.Node, err)
	}
	return gateway.SetOutside(ctx, pid, outside.Node{
		Owner: plan.NodeID(id).String(), Digest: o.Digest(), NAT: o.NAT, Ports: o.Ports,
		Bind: o.Bind, Rate: o.Rate,
	})
}

func (d *Pass) deleteOutside(ctx context.Context, id sliver.ID) error {
	gateway := d.Machine.Outside()
	if gateway == nil {
		return fmt.Errorf("disconnect %s from the outside: %w", id.Node, machine.ErrNoOutside)
	}
	return gateway.DeleteOutside(ctx, plan.NodeID(id).String())
}
