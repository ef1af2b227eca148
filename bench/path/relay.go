package path

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/lab/vnet"
)

// relay makes two hosts whose devices lead to a namespace in the middle, as the substrate is, where a program does
// nothing but hand frames from one to the other. It says how much of the time goes into everything else: nothing that
// stands in the middle can be faster.
type relay struct{}

func (relay) close() error { return nil }

func (relay) hosts(context.Context, int) (*Chain, error) { return relayChain(false) }

func (relay) nics(context.Context, int) (*Chain, error) { return relayChain(true) }

func relayChain(nic bool) (_ *Chain, err error) {
	c := &Chain{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make two hosts with a relay: %w", err), c.Close())
		}
	}()
	var spaces [3]*os.File // the left host, the right one, the middle
	for i := range spaces {
		if spaces[i], err = newNamespace(); err != nil {
			return nil, err
		}
		c.undo.Push(spaces[i].Close)
	}
	left, right, middle := spaces[0], spaces[1], spaces[2]
	var ports [2]int
	for end, host := range []*os.File{left, right} {
		if err = in(middle, func() error { ports[end], err = relayPort(end, host); return err }); err != nil {
			return nil, fmt.Errorf("make port %d: %w", end, err)
		}
		if err = in(host, func() error { return plainNode(end, 0) }); err != nil {
			return nil, fmt.Errorf("configure host %d: %w", end, err)
		}
		// only then it takes frames from XDP
		if err = vnet.SetOffload(host, hostDevice(end), vnet.GRO, nic); err != nil {
			return nil, err
		}
	}
	r, err := traffic.NewRelay(middle, ports[0], ports[1], nic)
	if err != nil {
		return nil, err
	}
	c.undo.Push(r.Close)
	c.Left, c.Right = ends(left, right, 0)
	return c, nil
}

// hostDevice is the left host's device, which is on its right, or the other way round.
func hostDevice(end int) string { return [2]string{rightDevice, leftDevice}[end] }

// relayPort makes the middle's end of a host's device, whose namespace the thread is in.
func relayPort(end int, host *os.File) (int, error) {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: hostDevice(1 - end)})
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = hostDevice(end), mac(0, end), netlink.NsFd(host.Fd())
	if err := netlink.LinkAdd(veth); err != nil {
		return 0, err
	}
	l, err := netlink.LinkByName(veth.Name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, netlink.LinkSetUp(l)
}
