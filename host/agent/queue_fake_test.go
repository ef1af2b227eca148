package agent

import (
	"context"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
)

// plain is a port without a treatment of frames: that goes with the wire.
func plain(p wire.PortState) wire.PortState {
	p.Layout = nil
	return p
}

func (n *memoryNetwork) Treat(_ context.Context, l wiring.Link) error {
	return n.step("treat", func() error {
		var layout *wiring.Layout
		if !l.IsPlain() {
			y := l.Layout()
			layout = &y
		}
		for _, name := range []string{l.A.Port, l.B.Port} {
			if p, is := n.state.Ports[name]; is {
				p.Layout = layout
				n.state.Ports[name] = p
			}
			if c, is := n.state.Cables[name]; is {
				c.Layout = layout
				n.state.Cables[name] = c
			}
		}
		return nil
	}, nil)
}
