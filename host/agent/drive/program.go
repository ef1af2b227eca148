package drive

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

// setProgram makes a node's packet program run, or replaces it. One that is refused changes nothing.
func (d *Pass) setProgram(ctx context.Context, id sliver.ID, p plan.Program, amend bool) error {
	programs := d.Machine.Programs()
	if programs == nil {
		return fmt.Errorf("load the program of %s: %w", id.Node, machine.ErrNoPrograms)
	}
	err := programs.SetProgram(ctx, plan.NodeID(id).ProgramName(), wire.Program{
		Slice: id.Slice, File: p.File, Object: p.Object, Filters: p.Filters, Ports: p.Ports,
		SlowPath: p.SlowPath, Reserve: p.Reserve, UDP: udpPorts(p.UDP),
		Digest: p.Digest,
	})
	var cutOff *wire.CutOffError
	switch {
	case errors.As(err, &cutOff):
		return fmt.Errorf("program of %s: %w", id.Node, err)
	case err != nil && amend:
		return fmt.Errorf("replace the program of %s, which goes on as it was: %w", id.Node, err)
	case err != nil:
		return fmt.Errorf("load the program of %s: %w", id.Node, err)
	}
	return nil
}

func (d *Pass) deleteProgram(ctx context.Context, id sliver.ID) error {
	programs := d.Machine.Programs()
	if programs == nil {
		return fmt.Errorf("remove the program of %s: %w", id.Node, machine.ErrNoPrograms)
	}
	return programs.DeleteProgram(ctx, plan.NodeID(id).ProgramName())
}

func udpPorts(wanted []plan.UDPPort) (all []wire.UDPPort) {
	for _, u := range wanted {
		all = append(all, wire.UDPPort{
			Interface: u.Interface, Local: u.Local, Port: u.Port, Peers: u.Peers,
			Rate: u.Rate.BytesPerSecond(),
		})
	}
	return all
}
