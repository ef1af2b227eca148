package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/vnet"
	"github.com/pergola-net/pergola/netns"
)

// The machine's NICs, and the end of each wire that is not the machine's.
const (
	inNIC  = "in"
	outNIC = "out"
	far    = "wire"
)

// machine is a namespace with two NICs.
type machine struct {
	ns          *os.File
	left, right end
	undo        undo
}

// end is the far end of a wire.
type end struct {
	ns    *os.File
	index int
}

// outside is an address on one of the wires (0: left, 1: right): number 1 is the machine's. inner is one within the tunnels.
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
		err := netns.New(func() (err error) {
			*ns, err = netns.Here()
			return err
		})
		if err != nil {
			return m, err
		}
		m.undo.push((*ns).Close)
	}
	for side, nic := range []string{inNIC, outNIC} {
		e := &m.left
		if side == 1 {
			e = &m.right
		}
		if err := m.plug(side, nic, e); err != nil {
			return m, fmt.Errorf("plug %s in: %w", nic, err)
		}
	}
	return m, nil
}

// plug lays a wire: its frames have their checksums, and none is longer than the MTU.
func (m *machine) plug(side int, nic string, e *end) error {
	err := netns.In(m.ns, func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: nic, MTU: 1600, HardwareAddr: mac(outside(side, 1))})
		pair.PeerName, pair.PeerNamespace, pair.PeerMTU, pair.PeerHardwareAddr = far, netlink.NsFd(e.ns.Fd()), 1600, mac(outside(side, 2))
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return setUp(nic, net24(outside(side, 1)), outside(side, 2))
	})
	if err != nil {
		return err
	}
	err = netns.In(e.ns, func() error {
		if err := setUp(far, net24(outside(side, 2)), outside(side, 1)); err != nil {
			return err
		}
		i, err := net.InterfaceByName(far)
		if err == nil {
			e.index = i.Index
		}
		return err
	})
	for _, to := range []struct {
		ns     *os.File
		device string
	}{{m.ns, nic}, {e.ns, far}} {
		err = errors.Join(err, vnet.SetOffload(to.ns, to.device, vnet.Checksum, false), vnet.SetOffload(to.ns, to.device, vnet.GRO, true))
	}
	return err
}

// setUp sets an interface up, with an address and a neighbour that needs no asking.
func setUp(name string, own netip.Prefix, neighbour netip.Addr) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), 32)}}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	return netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: neighbour.AsSlice(), HardwareAddr: mac(neighbour),
	})
}

// forward makes the namespace of the thread a router.
func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }

// road is what frames must look like to get through.
type road struct {
	from, to [6]byte // MAC addresses of the frames, within tunnels where there are some
	outer    func(size int) []byte
}

// Headers that come before a frame. What varies with the frame's size is written for it.
func noTunnel(int) []byte { return nil }

func greHeaders(key uint32) func(size int) []byte {
	return func(size int) []byte {
		gre := binary.BigEndian.AppendUint32([]byte{0x20, 0x00, 0x65, 0x58}, key) // RFC 2890: a key; transparent Ethernet
		return append(ipHeaders(len(gre)+size, 47), gre...)
	}
}

func vxlanHeaders(vni uint32) func(size int) []byte {
	return func(size int) []byte {
		udp := binary.BigEndian.AppendUint16(nil, 50000)
		udp = binary.BigEndian.AppendUint16(udp, vxlanPort)
		udp = binary.BigEndian.AppendUint16(udp, uint16(16+size))
		udp = append(udp, 0, 0)
		vxlan := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8) // RFC 7348
		return append(append(ipHeaders(16+size, 17), udp...), vxlan...)
	}
}

const vxlanPort = 4789

// ipHeaders are Ethernet's and IPv4's from the left end to the machine.
func ipHeaders(payload int, protocol byte) []byte {
	b := append(append([]byte{}, mac(outside(0, 1))...), mac(outside(0, 2))...)
	b = append(b, 0x08, 0x00)
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+payload))
	ip = append(append(ip, outside(0, 2).AsSlice()...), outside(0, 1).AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return append(b, ip...)
}
