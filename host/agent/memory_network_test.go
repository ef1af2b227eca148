package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
)

// memoryNetwork is the network of a machine: it has neither a data path nor tunnels to anywhere.
type memoryNetwork struct {
	*memoryMachine
	closed bool
}

func (n *memoryNetwork) Close() error {
	return n.step("close network", func() error { n.closed = true; return nil }, nil)
}

func (n *memoryNetwork) Observe(context.Context) (wire.State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !n.present {
		return wire.State{}, errors.New("observe network: it is closed")
	}
	s := n.state
	s.Ports, s.Cables, s.Switches = maps.Clone(s.Ports), maps.Clone(s.Cables), maps.Clone(s.Switches)
	return s, nil
}

func (n *memoryNetwork) Counters(context.Context) (map[string]wire.Traffic, error) { return nil, nil }

// QueueStats counts as many frames as a class has a number, and finds each queue full.
func (n *memoryNetwork) QueueStats(
	_ context.Context, devices ...string,
) (map[string]map[uint16]wire.QueueStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]map[uint16]wire.QueueStats{}
	for _, p := range n.state.Ports {
		if p.Layout == nil {
			continue
		}
		for _, name := range devices {
			for _, c := range p.Layout.Trees[name].Classes {
				if all[name] == nil {
					all[name] = map[uint16]wire.QueueStats{}
				}
				q := wire.QueueStats{Frames: uint64(c.Minor), Drops: 1, Waiting: c.Queue}
				all[name][c.Minor] = q
			}
		}
	}
	return all, nil
}

func (n *memoryNetwork) AddPort(_ context.Context, p wire.Port) error {
	return n.step("add port", func() error {
		hasPID := func(s *sliver.Observed) bool { return s.PID == p.PID }
		if !p.HostNetns && !slices.ContainsFunc(slices.Collect(maps.Values(n.slivers)), hasPID) {
			return fmt.Errorf("add port %s: no process %d", p.Name, p.PID)
		}
		n.dropPort(p.Name)
		n.dropCable(p.Name) // makes room for itself, whatever has the name
		n.pids++
		n.state.Ports[p.Name] = wire.PortState{
			Owner: p.Owner, Digest: p.Digest, PID: p.PID, Index: n.pids, Inner: n.pids,
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) AddTunnel(_ context.Context, t wire.Tunnel) error {
	return n.step("add tunnel", func() error {
		p := n.state.Ports[t.Name] // an amended one stays wired
		p.Owner, p.Digest, p.Tunnel, p.Up = t.Owner, t.Digest, true, true
		n.state.Ports[t.Name] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) dropCable(end string) {
	if c, there := n.state.Cables[end]; there {
		delete(n.state.Cables, end)
		delete(n.state.Cables, c.Peer)
	}
}

func (n *memoryNetwork) DeletePorts(_ context.Context, names ...string) error {
	return n.step("delete ports", func() error {
		for _, name := range names {
			n.dropPort(name)
			n.dropCable(name)
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) DeleteSlice(_ context.Context, id uint16) error {
	return n.step("delete slice", func() error {
		prefix := fmt.Sprintf("s%d", id)
		for name := range n.state.Ports {
			if isOf(name, prefix) {
				n.dropPort(name)
			}
		}
		maps.DeleteFunc(n.state.Cables, func(name string, _ wire.CableState) bool { return isOf(name, prefix) })
		maps.DeleteFunc(n.state.Switches, func(name string, _ wire.SwitchState) bool {
			return isOf(name, prefix)
		})
		return nil
	}, nil)
}

// isOf reports whether a device's name is a slice's prefix and a letter and more.
func isOf(name, prefix string) bool {
	return len(name) > len(prefix) && name[:len(prefix)] == prefix &&
		(name[len(prefix)] < '0' || name[len(prefix)] > '9')
}

// port changes a port that must be there.
func (n *memoryNetwork) port(step, name string, change func(p *wire.PortState)) error {
	return n.step(step, func() error {
		p, there := n.state.Ports[name]
		if !there {
			return fmt.Errorf("%s %s: %w", step, name, wire.ErrNoDevice)
		}
		change(&p)
		n.state.Ports[name] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) SetUp(_ context.Context, port string, up bool) error {
	return n.port("set up", port, func(p *wire.PortState) { p.Up = up })
}

func (n *memoryNetwork) ConfigureNode(_ context.Context, _ int, _ wire.Node) error {
	return n.step("configure node", func() error { return nil }, nil)
}

func (n *memoryNetwork) AddSwitch(_ context.Context, w wire.Switch) error {
	return n.step("add switch", func() error {
		n.state.Switches[w.Name] = wire.SwitchState{Owner: w.Owner, Digest: w.Digest}
		return nil
	}, nil)
}

func (n *memoryNetwork) DeleteSwitches(_ context.Context, names ...string) error {
	return n.step("delete switches", func() error {
		for _, name := range names {
			delete(n.state.Switches, name)
			for port, p := range n.state.Ports {
				if p.Switch == name {
					n.unjoin(port)
				}
			}
			for end, c := range n.state.Cables {
				if c.Switch == name {
					c.Switch = ""
					n.state.Cables[end] = c
				}
			}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) Join(_ context.Context, a, b string) error {
	return n.step("join", func() error {
		p, there := n.state.Ports[a]
		q, also := n.state.Ports[b]
		if !there || !also {
			return fmt.Errorf("join %s and %s: %w", a, b, wire.ErrNoDevice)
		}
		p.Peer, q.Peer, p.Switch, q.Switch = b, a, "", ""
		n.state.Ports[a], n.state.Ports[b] = p, q
		return nil
	}, nil)
}

func (n *memoryNetwork) Attach(_ context.Context, port, sw string) error {
	return n.step("attach", func() error {
		p, there := n.state.Ports[port]
		if _, also := n.state.Switches[sw]; !there || !also {
			return fmt.Errorf("attach %s to %s: %w", port, sw, wire.ErrNoDevice)
		}
		p.Peer, p.Switch = "", sw
		n.state.Ports[port] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) AddCable(_ context.Context, c wire.Cable) error {
	return n.step("add cable", func() error {
		for i, end := range c.Ends {
			if _, there := n.state.Switches[end.Switch]; !there {
				return fmt.Errorf("add cable to %s: %w", end.Switch, wire.ErrNoDevice)
			}
			n.state.Cables[end.Name] = wire.CableState{
				Owner: c.Owner, Up: true, Peer: c.Ends[1-i].Name, Switch: end.Switch,
			}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) Unjoin(_ context.Context, port string) error {
	return n.step("unjoin", func() error {
		if _, there := n.state.Ports[port]; !there {
			return fmt.Errorf("unjoin %s: %w", port, wire.ErrNoDevice)
		}
		n.unjoin(port)
		return nil
	}, nil)
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

func (n *memoryNetwork) ShareCard(_ context.Context, c wiring.Card) error {
	return n.step("share card", func() error {
		n.state.Card = nil
		if !c.IsZero() {
			tree := c.Tree()
			n.state.Card = &tree
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) OpenUnderlay(context.Context, wire.UnderlayConfig) error { return nil }
func (n *memoryNetwork) Underlay(context.Context) (wire.UnderlayState, error) {
	return wire.UnderlayState{}, nil
}
