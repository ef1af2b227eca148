package vnet

import (
	"context"
	"fmt"
	"net"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// link makes all ports and wires.
func (n *Network) link(ctx context.Context) error {
	type end struct {
		End
		port string
		link int
	}
	byNode := map[string][]end{} // in the plan's order: an interface's ifindex in its node depends on nothing else
	for i, l := range n.Plan.Links {
		for _, e := range l.Ends {
			at := endpoint{e.Node, e.Interface}
			name := slice.PortName(n.Plan.Slice, uint16(len(n.ports)+1))
			n.ports[at] = port{name: name}
			byNode[e.Node] = append(byNode[e.Node], end{e, name, i})
		}
	}
	err := parallel(n.Plan.Nodes, func(p *NodePlan) error {
		node := n.Nodes[p.Name]
		return node.Do(func() error {
			for _, e := range byNode[p.Name] {
				if err := n.addPort(ctx, e.End, e.port); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i, l := range n.Plan.Links {
		if err := n.wire(ctx, i, l); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) addPort(ctx context.Context, e End, name string) error {
	mac := e.MAC
	if mac == nil {
		mac = MAC(n.ports[endpoint{e.Node, e.Interface}].name)
	}
	mtu := e.MTU
	if mtu == 0 {
		mtu = 1500
	}
	err := n.platform.HostNetwork.AddPort(ctx, wire.Port{
		Name: name, Slice: n.Plan.Slice, Owner: fmt.Sprintf("vnet%d/%s:%s", n.Plan.Slice, e.Node, e.Interface),
		Digest: "vnet",
		PID:    here(), Inner: e.Interface, MAC: mac, MTU: mtu,
	})
	if err != nil {
		return fmt.Errorf("interface %s of %s: %w", e.Interface, e.Node, err)
	}
	return nil
}

// MAC gives a port whose plan has none an address by the port's number in its network.
func MAC(port string) net.HardwareAddr {
	var id, number uint16
	_, _ = fmt.Sscanf(port, "s%dp%d", &id, &number) // our own name
	return net.HardwareAddr{2, 0, 0, 0, byte(number >> 8), byte(number)}
}

func (n *Network) wire(ctx context.Context, number int, l LinkPlan) error {
	s := n.platform.HostNetwork
	if !l.LAN && len(l.Ends) == 1 {
		return nil
	}
	if !l.LAN {
		if err := s.Join(ctx, n.Port(l.Ends[0].Node, l.Ends[0].Interface),
			n.Port(l.Ends[1].Node, l.Ends[1].Interface)); err != nil {
			return fmt.Errorf("link %d: %w", number+1, err)
		}
		return n.shape(ctx, l)
	}
	name := n.Switch(number)
	owner := fmt.Sprintf("vnet%d/lan%d", n.Plan.Slice, number+1)
	if err := s.AddSwitch(ctx, wire.Switch{Name: name, Slice: n.Plan.Slice, Owner: owner,
		Digest: "vnet"}); err != nil {
		return fmt.Errorf("switch of link %d: %w", number+1, err)
	}
	for _, e := range l.Ends {
		if err := s.Attach(ctx, n.Port(e.Node, e.Interface), name); err != nil {
			return fmt.Errorf("interface %s of %s: %w", e.Interface, e.Node, err)
		}
	}
	return n.shape(ctx, l)
}

func (n *Network) shape(ctx context.Context, l LinkPlan) error {
	for _, e := range l.Ends {
		if e.Shape.IsZero() {
			continue
		}
		if err := n.platform.HostNetwork.Shape(ctx, n.Port(e.Node, e.Interface), wire.FromNode,
			e.Shape); err != nil {
			return fmt.Errorf("shape %s of %s: %w", e.Interface, e.Node, err)
		}
	}
	return nil
}

// Switch names the one of a LAN, which is the link of that number in the plan, from 0.
func (n *Network) Switch(link int) string { return fmt.Sprintf("s%db%d", n.Plan.Slice, link+1) }

// Port names the substrate's end of a node's interface.
func (n *Network) Port(node, name string) string { return n.ports[endpoint{node, name}].name }

// PortIndex gives the ifindex of that end, in the substrate.
func (n *Network) PortIndex(node, name string) int { return n.ports[endpoint{node, name}].index }

// learn reads the numbers of the devices, at both ends of the pairs, from the substrate's side.
func (n *Network) learn(ctx context.Context) error {
	state, err := n.platform.HostNetwork.Observe(ctx)
	if err != nil {
		return err
	}
	for at, p := range n.ports {
		is, ok := state.Ports[p.name]
		if !ok {
			return fmt.Errorf("find port %s of %s: it is gone", p.name, at.node)
		}
		p.index, p.inner = is.Index, is.Inner
		n.ports[at] = p
		n.Nodes[at.node].index[at.name] = p.inner
	}
	return nil
}

// configure gives a node its addresses, neighbours and routes.
func (n *Network) configure(p *NodePlan) error {
	var all []Change
	for _, a := range p.Loopbacks {
		all = append(all, AddAddress{"lo", a})
	}
	for _, l := range n.Plan.Links {
		for _, e := range l.Ends {
			if e.Node != p.Name {
				continue
			}
			for _, a := range e.Addresses {
				all = append(all, AddAddress{e.Interface, a})
			}
		}
	}
	for _, b := range p.Neighbours {
		all = append(all, SetNeighbour{b})
	}
	for _, o := range p.Objects {
		all = append(all, ReplaceObject{o})
	}
	for _, r := range p.Routes {
		all = append(all, AddRoute{r})
	}
	return n.Nodes[p.Name].Apply(all...)
}
