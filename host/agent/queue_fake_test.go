package agent

import (
	"context"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// plain is a port without a treatment of frames: that goes with the wire.
func plain(p wire.PortState) wire.PortState {
	p.FromNode, p.ToNode, p.Again = wire.Queue{}, wire.Queue{}, false
	return p
}

func (n *memoryNetwork) Reenter(_ context.Context, port string, again bool) error {
	if n.isCable(port) {
		return nil
	}
	return n.port("reenter", port, func(p *wire.PortState) { p.Again = again })
}

func (n *memoryNetwork) isCable(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, is := n.state.Cables[name]
	return is
}

func (n *memoryNetwork) Shape(_ context.Context, port string, dir wire.Direction, shape slice.Shape) error {
	if n.isCable(port) {
		return n.step("shape", func() error {
			if c := n.state.Cables[port]; dir == wire.FromNode {
				c.FromNode.Shape = shape
				n.state.Cables[port] = c
			}
			return nil
		}, nil)
	}
	return n.port("shape", port, func(p *wire.PortState) {
		if dir == wire.FromNode {
			p.FromNode.Shape = shape
		} else {
			p.ToNode.Shape = shape
		}
	})
}
