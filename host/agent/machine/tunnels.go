package machine

import (
	"context"

	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/wire"
)

// Tunnels is the part of the network that tunnels leave by; nil where there is no network.
func (m *Machine) Tunnels() member.Tunnels {
	if n := m.Network(); n != nil {
		return tunnels{n}
	}
	return nil
}

// tunnels makes a Network a member.Tunnels.
type tunnels struct{ Network }

// OpenUnderlay implements member.Tunnels.
func (t tunnels) OpenUnderlay(ctx context.Context, c member.UnderlayConfig) error {
	return t.Network.OpenUnderlay(ctx, wire.UnderlayConfig(c))
}

// UnderlayState implements member.Tunnels.
func (t tunnels) UnderlayState(ctx context.Context) (member.UnderlayState, error) {
	state, err := t.Underlay(ctx)
	if err != nil {
		return member.UnderlayState{}, err
	}
	nics := make(map[string]member.NIC, len(state.NICs))
	for name, nic := range state.NICs {
		nics[name] = member.NIC{Present: nic.Present, Up: nic.Up, Index: nic.Index, XDP: nic.XDP}
	}
	return member.UnderlayState{NICs: nics, Counters: state.Counters, Bound: state.Bound}, nil
}
