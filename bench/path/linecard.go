package path

import (
	"errors"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/lab/vnet"
)

// lineCards makes the ports of both hosts what the devices of a NIC are: frames come in through XDP, and go out so.
func (p pergolaChains) lineCards(n *vnet.Network, routers int) error {
	left, right := n.PortIndex(node(0), rightDevice), n.PortIndex(node(routers+1), leftDevice)
	return p.platform.Data(func(d *datapath.DataPath) error {
		const native = true
		return errors.Join(d.AttachPortLineCard(left, native), d.AllowXDPToPort(right, right))
	})
}
