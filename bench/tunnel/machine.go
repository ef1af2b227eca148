package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// The machine's NICs, and the end of each wire that is not the machine's.
const (
	inNIC  = "in"
	outNIC = "out"
	far    = "wire"
)

// nicMTU is that of all wires: what tunnels carry is smaller.
const nicMTU = 1500

// machine is a namespace with two NICs.
type machine struct {
	ns          *os.File
	left, right end
	undo        undo.Steps
}

// end is the far end of a wire.
type end struct {
	ns    *os.File
	index int
}

// outside is an address on one of the wires (0: left, 1: right): number 1 is the machine's. inner is one within the
// tunnels.
func outside(side, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(100 + side), byte(number)})
}

func inner(side, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 19, byte(side), byte(number)})
}

func net24(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 24) }

// mac is that of the interface with the address.
func mac(a netip.Addr) net.HardwareAddr { return append(net.HardwareAddr{2, 0}, a.AsSlice()...) }

func newMachine() (*machine, error) {
	m := &machine{}
	for _, ns := range []**os.File{&m.ns, &m.left.ns, &m.right.ns} {
		var err error
		if *ns, err = newNamespace(); err != nil {
			return m, err
		}
		m.undo.Push((*ns).Close)
	}
	for side, e := range []*end{&m.left, &m.right} {
		name := []string{inNIC, outNIC}[side]
		err := lay(nic{m.ns, name, outside(side, 1)}, nic{e.ns, far, outside(side, 2)})
		if err == nil {
			e.index, err = indexOf(e.ns, far)
		}
		if err != nil {
			return m, fmt.Errorf("plug %s in: %w", name, err)
		}
	}
	return m, nil
}

// newNamespace makes a network namespace that lives as long as the file.
func newNamespace() (ns *os.File, err error) {
	err = netns.New(func() (err error) {
		ns, err = netns.Here()
		return err
	})
	return ns, err
}

func indexOf(ns *os.File, name string) (index int, err error) {
	err = netns.In(ns, func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			index = i.Index
		}
		return err
	})
	return index, err
}

// nic is an interface with one end of a wire.
type nic struct {
	ns      *os.File
	name    string
	address netip.Addr
}

// lay lays a wire: its frames have their checksums, and none is longer than the MTU.
func lay(a, b nic) error {
	err := netns.In(a.ns, func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: a.name, MTU: nicMTU, HardwareAddr: mac(a.address)})
		pair.PeerName, pair.PeerNamespace, pair.PeerMTU, pair.PeerHardwareAddr = b.name,
			netlink.NsFd(b.ns.Fd()), nicMTU, mac(b.address)
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		return err
	}
	for _, side := range [][2]nic{{a, b}, {b, a}} {
		here, there := side[0], side[1]
		err := netns.In(here.ns, func() error { return setUp(here.name, net24(here.address), there.address) })
		if err := errors.Join(err, vnet.SetOffload(here.ns, here.name, vnet.Checksum, false),
			vnet.SetOffload(here.ns, here.name, vnet.GRO, true)); err != nil {
			return err
		}
	}
	return nil
}

// setUp sets an interface up, with an address and a neighbour that needs no asking.
func setUp(name string, own netip.Prefix, neighbour netip.Addr) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l,
		&netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(),
			Mask: net.CIDRMask(own.Bits(), 32)}}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	return netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: neighbour.AsSlice(),
		HardwareAddr: mac(neighbour),
	})
}

// forward makes the namespace of the thread a router.
func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }
