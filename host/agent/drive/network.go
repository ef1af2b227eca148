package drive

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

// removeNetwork removes the network of all slices. What is left if a step fails is then observed as broken, and removed
// by the next plan.
func (d *Pass) removeNetwork(ctx context.Context) error {
	n := d.Machine.DetachNetwork()
	if n == nil {
		return d.Machine.Platform.RemoveNetwork(ctx)
	}
	return errors.Join(d.FastPath.Close(), n.Close(), d.Machine.Platform.RemoveNetwork(ctx))
}

// DeleteRemains deletes the devices of ports that were left half made: they are no resources.
func (d *Driver) DeleteRemains(ctx context.Context, seen *observe.Snapshot) error {
	n := d.Machine.Network()
	if n == nil || len(seen.Remains) == 0 {
		return nil
	}
	return n.DeletePorts(ctx, seen.Remains...)
}

// addPort makes a port that has no carrier yet: a wire gives it one.
func (d *Pass) addPort(ctx context.Context, id uint16, p plan.Port) error {
	w := wire.Port{
		Name: p.Device, Slice: id, Owner: p.Node + ":" + p.Name, Digest: p.Digest(),
		HostNetns: p.Uplink, Inner: p.Name, MTU: p.MTU, Down: true,
	}
	var err error
	if w.MAC, err = net.ParseMAC(p.MAC); err != nil {
		return fmt.Errorf("add interface %s: %w", w.Owner, err)
	}
	if p.Uplink {
		w.Addresses = p.Addresses
		return d.Machine.Network().AddPort(ctx, w)
	}
	node := sliver.ID{Slice: id, Node: p.Node}
	if w.PID, err = d.pid(node); err == nil {
		err = d.unsettle(node)
	}
	if err != nil {
		return fmt.Errorf("add interface %s: %w", w.Owner, err)
	}
	return d.Machine.Network().AddPort(ctx, w)
}

// unsettle forgets that a node's network was configured, before it gets an interface in the place of one that is gone:
// that has neither addresses nor routes yet, and the plan may end, or the server die, before it has.
func (d *Pass) unsettle(id sliver.ID) error {
	if d.Seen.Slivers[id].Notes[plan.NoteOf[plan.KindNodeNet]] == "" {
		return nil
	}
	return d.Machine.Runtime.Note(id, plan.NoteOf[plan.KindNodeNet], "")
}

// configureNode sets loopback addresses, routes and sysctls within a node.
func (d *Pass) configureNode(ctx context.Context, id sliver.ID, n plan.NodeNet) error {
	pid, err := d.pid(id)
	if err != nil {
		return err
	}
	w := wire.Node{Router: n.Router, Sysctls: n.Sysctls, Loopbacks: n.Loopbacks, Routes: n.Routes}
	for _, i := range n.Interfaces {
		w.Interfaces = append(w.Interfaces, wire.Interface(i))
	}
	if err := d.Machine.Network().ConfigureNode(ctx, pid, w); err != nil {
		return fmt.Errorf("configure the network of %s: %w", id.Node, err)
	}
	return d.Machine.Runtime.Note(id, plan.NoteOf[plan.KindNodeNet], plan.Digest(n))
}

// connect makes a wire, and then lets its ports have a carrier.
func connect(ctx context.Context, n machine.Network, id uint16, w plan.Wire) error {
	switch w := w.(type) {
	case plan.Join:
		if err := n.Join(ctx, w.A, w.B); err != nil {
			return err
		}
		return errors.Join(n.SetUp(ctx, w.A, true), n.SetUp(ctx, w.B, true))
	case plan.Plug:
		if err := n.Attach(ctx, w.Port, w.Bridge); err != nil {
			return err
		}
		return n.SetUp(ctx, w.Port, true)
	case plan.Cable:
		return n.AddCable(ctx, wire.Cable{
			Slice: id, Owner: w.Owner, MTU: w.MTU,
			Ends: [2]wire.CableEnd{{Name: w.A, Switch: w.BridgeA}, {Name: w.B, Switch: w.BridgeB}},
		})
	default:
		return fmt.Errorf("connect %T: no driver", w)
	}
}

// disconnect takes the carrier away, and then the wire. What is gone already is no error.
func disconnect(ctx context.Context, n machine.Network, w plan.Wire) error {
	switch w := w.(type) {
	case plan.Join:
		return errors.Join(unjoin(ctx, n, w.A), unjoin(ctx, n, w.B))
	case plan.Plug:
		return unjoin(ctx, n, w.Port)
	case plan.Cable:
		return n.DeletePorts(ctx, w.A, w.B)
	default:
		return fmt.Errorf("disconnect %T: no driver", w)
	}
}

func unjoin(ctx context.Context, n machine.Network, port string) error {
	err := errors.Join(n.SetUp(ctx, port, false), n.Unjoin(ctx, port))
	if errors.Is(err, wire.ErrNoDevice) {
		return nil
	}
	return err
}

// tunnelOf gives the proxy port of a planned tunnel. Package wire isolates all that are in a bridge, and a plan has no
// others there.
func tunnelOf(t plan.Tunnel) wire.Tunnel {
	return wire.Tunnel{
		Name: t.Name, Slice: t.Slice, Owner: t.Owner, Digest: t.Digest,
		Kind: t.Kind, Key: t.Key, Local: t.Local, Peer: t.Peer,
		DSCP: t.DSCP, MTU: t.MTU, StormControl: t.StormControl, CountsMet: t.CountsMet,
	}
}
