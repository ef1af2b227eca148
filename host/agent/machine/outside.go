package machine

import (
	"context"
	"errors"

	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// Outside connects slivers with what is outside of all slices. A Network that has it can have nodes that reach it.
type Outside interface {
	// SetOutside connects a sliver, whose first process is given, or gives it what it is to have now.
	SetOutside(ctx context.Context, pid int, n outside.Node) error
	DeleteOutside(ctx context.Context, owner string) error
	OutsideNodes(ctx context.Context) ([]outside.Node, error)
	// OutsideCounts gives what was dropped of the traffic of slivers with the outside, by owner.
	OutsideCounts(ctx context.Context) (map[string]outside.Counts, error)
	// BoundPorts lists the ports that processes have bound, by owner of slivers that reserve ports so. pids are
	// the first processes of slivers.
	BoundPorts(ctx context.Context, pids map[string]int) (map[string][]slice.HostPort, error)
	// Unclaim takes a port back that a sliver has bound: it cannot be reserved.
	Unclaim(owner string, p slice.HostPort) error
}

// ErrNoOutside is the error of a node that is to reach the outside on a machine whose network cannot do that.
var ErrNoOutside = errors.New("this machine's network does not reach the outside")

// Outside is that of the network that is open; nil where there is none.
func (m *Machine) Outside() Outside {
	o, _ := m.Network().(Outside)
	return o
}

// rootNetwork is the host network with its gateway.
type rootNetwork struct {
	*wire.HostNetwork
	exit
}

// exit makes a gateway an Outside.
type exit struct{ gateway *outside.Gateway }

// SetOutside implements Outside.
func (n exit) SetOutside(ctx context.Context, pid int, o outside.Node) error {
	return n.gateway.Set(ctx, pid, o)
}

// DeleteOutside implements Outside.
func (n exit) DeleteOutside(ctx context.Context, owner string) error {
	return n.gateway.Delete(ctx, owner)
}

// OutsideNodes implements Outside.
func (n exit) OutsideNodes(ctx context.Context) ([]outside.Node, error) {
	return n.gateway.Nodes(ctx)
}

// OutsideCounts implements Outside.
func (n exit) OutsideCounts(ctx context.Context) (map[string]outside.Counts, error) {
	return n.gateway.Counts(ctx)
}

// BoundPorts implements Outside.
func (n exit) BoundPorts(ctx context.Context, pids map[string]int) (map[string][]slice.HostPort, error) {
	return n.gateway.Bound(ctx, pids)
}

// Unclaim implements Outside.
func (n exit) Unclaim(owner string, p slice.HostPort) error {
	return n.gateway.Unclaim(owner, p)
}

// Close implements Network.
func (n *rootNetwork) Close() error { return errors.Join(n.gateway.Close(), n.HostNetwork.Close()) }
