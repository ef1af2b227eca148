package path

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/pergola-net/pergola/host/undo"
)

// Chain is a row of routers between two hosts, each link a subnet. It is what everything is measured on, whoever made
// it.
type Chain struct {
	Routers     int
	Left, Right End
	// First is the namespace of the first router, where there is one: its statistics tell what it forwarded itself.
	First *os.File
	// settle waits until changes of the routers are known wherever they must be; nil: they are at once.
	settle func(context.Context) error
	undo   undo.Steps
}

// End is a host's interface.
type End struct {
	NS      *os.File
	Device  string
	MAC     [6]byte
	Address netip.Addr
	Next    [6]byte // MAC address of the next node's interface
}

// Close removes the chain.
func (c *Chain) Close() error { return c.undo.Run() }

// maker makes chains of one kind. What it makes lives no longer than the maker.
type maker interface {
	// hosts makes a chain whose hosts have sockets.
	hosts(ctx context.Context, routers int) (*Chain, error)
	close() error
}

// nicMaker makes chains whose ends stand for NICs as well: what is sent into the left one with XDP enters as from a
// wire.
type nicMaker interface {
	nics(ctx context.Context, routers int) (*Chain, error)
}

// Links are numbered from the left; link i joins node i and node i+1. 198.18.0.0/15 is for benchmarks (RFC 2544).
func address(link, end int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(link), byte(1 + end)})
}

func subnet(link int) netip.Prefix { return netip.PrefixFrom(address(link, 0), 24).Masked() }

// mac is the address of the interface at that end of a link.
func mac(link, end int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 18, byte(link), byte(1 + end)}
}

// The names of interfaces, by the side of the node that they are on.
const (
	leftDevice  = "left"
	rightDevice = "right"
)

// route is what a node of a chain must know beside its own links.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// routesOf are those of node number i (0 is the left host) to the hosts' subnets.
func routesOf(i, routers int) []route {
	var all []route
	if i < routers {
		all = append(all, route{subnet(routers), address(i, 1)})
	}
	if i > 1 {
		all = append(all, route{subnet(0), address(i-1, 0)})
	}
	return all
}

// ends are those of a chain between two namespaces whose interfaces have the addresses above.
func ends(left, right *os.File, routers int) (End, End) {
	l := End{NS: left, Device: rightDevice, MAC: [6]byte(mac(0, 0)), Address: address(0, 0),
		Next: [6]byte(mac(0, 1))}
	r := End{NS: right, Device: leftDevice, MAC: [6]byte(mac(routers, 1)), Address: address(routers, 1),
		Next: [6]byte(mac(routers, 0))}
	return l, r
}

// device gives the number of an end's interface.
func (e End) device() (int, error) {
	var index int
	err := in(e.NS, func() error {
		i, err := net.InterfaceByName(e.Device)
		if err == nil {
			index = i.Index
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find interface %s: %w", e.Device, err)
	}
	return index, nil
}
