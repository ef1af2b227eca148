package vnet

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
)

// lineCards makes ports what the devices of NICs are: frames leave by the device itself, and come in without
// offloads. While the network is on the fast path, frames come in through XDP.
func (n *Network) lineCards(l LinkPlan) error {
	for _, e := range l.Ends {
		if !e.NIC {
			continue
		}
		// At the other end of a wire frames are complete, and those that XDP redirects are taken: by a veth
		// only with GRO, or a program.
		ns := n.Nodes[e.Node].NS
		if err := errors.Join(SetOffload(ns, e.Interface, Checksum, false),
			SetOffload(ns, e.Interface, GRO, true)); err != nil {
			return err
		}
		err := n.platform.Data(func(d *datapath.DataPath) error {
			port := n.PortIndex(e.Node, e.Interface)
			record, ok, err := d.Port(port)
			if err == nil && !ok {
				err = errors.New("there is none")
			}
			if err != nil {
				return fmt.Errorf("read port record: %w", err)
			}
			record.External = true
			return d.Set(port, record)
		})
		if err != nil {
			return fmt.Errorf("make %s of %s a NIC: %w", e.Interface, e.Node, err)
		}
	}
	return nil
}

// xdp puts line cards before the NICs, or takes them away.
func (n *Network) xdp(l LinkPlan, on bool) error {
	for _, e := range l.Ends {
		if !e.NIC {
			continue
		}
		err := n.platform.Data(func(d *datapath.DataPath) error {
			const native = true
			port := n.PortIndex(e.Node, e.Interface)
			if !on {
				return errors.Join(d.DenyXDPToPort(port), d.DetachPortLineCard(port))
			}
			return errors.Join(d.AttachPortLineCard(port, native), d.AllowXDPToPort(port, port))
		})
		if err != nil {
			return fmt.Errorf("line card of %s of %s: %w", e.Interface, e.Node, err)
		}
	}
	return nil
}

// Data calls f with the substrate's data path, in its namespace.
func (g *Platform) Data(f func(*datapath.DataPath) error) error {
	return netns.Do(g.HostNetwork.Namespace(), func() error {
		d, err := datapath.Open(filepath.Join(g.dir, "bpf"), adopted{})
		if err != nil {
			return fmt.Errorf("open the data path: %w", err)
		}
		return errors.Join(f(d), d.Close())
	})
}

// adopted is the hook of a data path that another has made: there is nothing to attach.
type adopted struct{}

var errMade = errors.New("the data path is there already")

func (adopted) Replace([]int, *datapath.Program) error { return errMade }
func (adopted) Attach(int, *datapath.Program) error    { return errMade }
