package program

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

// Every router, whatever it is made of, has wires to a source and to a sink, one of each for each slice.
//
//	source ── in0 │ router 0 │ out0 ── sink
//	source ── in1 │ router 1 │ out1 ── sink

// sourceAddress and sinkAddress are those of the ends of wires; 198.18.0.0/15 is for benchmarks (RFC 2544). The
// router's end has the next address.
func sourceAddress(slice int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(slice), 1}) }
func sinkAddress(slice int) netip.Addr   { return netip.AddrFrom4([4]byte{198, 19, byte(slice), 1}) }

// MAC addresses are the same on all wires of a kind: each wire has two devices, and no others hear them.
var (
	sourceMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	inMAC      = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	outMAC     = net.HardwareAddr{2, 0, 0, 0, 0, 3}
	sinkMAC    = net.HardwareAddr{2, 0, 0, 0, 0, 4}
	strangeMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9} // nobody's: a kernel drops such frames first of all
)

// Names of devices; those of the router are unique on the machine.
func inDevice(slice int) string  { return fmt.Sprintf("pgbin%d", slice) }
func outDevice(slice int) string { return fmt.Sprintf("pgbout%d", slice) }
func endDevice(slice int) string { return fmt.Sprintf("eth%d", slice+1) }

// ends are where frames come from, and where they go.
type ends struct{ source, sink *os.File }

// machine is a namespace for routers of user space, or of a program that hands frames on.
type machine struct {
	ends
	ns   *os.File
	undo undo.Steps
}

// newNamespace makes a network namespace that lives as long as the file.
func newNamespace() (ns *os.File, err error) {
	err = netns.New(func() (err error) {
		ns, err = netns.Here()
		return err
	})
	return ns, err
}

// newMachine makes one with wires for so many slices.
func newMachine(slices int) (_ *machine, err error) {
	m := &machine{}
	defer m.undo.OnError(&err)
	for _, ns := range []**os.File{&m.ns, &m.source, &m.sink} {
		if *ns, err = newNamespace(); err != nil {
			return nil, err
		}
		m.undo.Push((*ns).Close)
	}
	for i := range slices {
		source, sink := sourceAddress(i), sinkAddress(i)
		err := errors.Join(
			lay(
				nic{m.ns, inDevice(i), source.Next(), inMAC},
				nic{m.source, endDevice(i), source, sourceMAC},
			),
			lay(nic{m.ns, outDevice(i), sink.Next(), outMAC}, nic{m.sink, endDevice(i), sink, sinkMAC}),
		)
		if err != nil {
			return nil, fmt.Errorf("lay wires: %w", err)
		}
	}
	return m, nil
}

// nic is an interface with one end of a wire.
type nic struct {
	ns      *os.File
	name    string
	address netip.Addr
	mac     net.HardwareAddr
}

// lay lays a wire: its frames have their checksums, and it takes frames from XDP programs, which a veth device does
// where it has GRO.
func lay(a, b nic) error {
	err := netns.In(a.ns, func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: a.name, HardwareAddr: a.mac})
		pair.PeerName, pair.PeerNamespace, pair.PeerHardwareAddr = b.name, netlink.NsFd(b.ns.Fd()), b.mac
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		return err
	}
	for _, side := range [][2]nic{{a, b}, {b, a}} {
		here, there := side[0], side[1]
		err := errors.Join(netns.In(here.ns, func() error { return setUp(here, there) }),
			vnet.SetOffload(here.ns, here.name, vnet.Checksum, false),
			vnet.SetOffload(here.ns, here.name, vnet.GRO, true))
		if err != nil {
			return err
		}
	}
	return nil
}

// setUp sets an interface up, with an address and a neighbour that needs no asking.
func setUp(here, there nic) error {
	l, err := netlink.LinkByName(here.name)
	if err != nil {
		return err
	}
	own := &net.IPNet{IP: here.address.AsSlice(), Mask: net.CIDRMask(24, 32)}
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: own}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	return netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: there.address.AsSlice(), HardwareAddr: there.mac})
}

// indexOf gives the number of an interface.
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
