package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// MaxUDPPeers is how many prefixes a UDP port may send to: MAX_UDP_PEERS in bpf/node_udp.h.
const MaxUDPPeers = 16

// udpBurst is for how long a UDP port may have been silent to its own profit.
const udpBurst = 20 * time.Millisecond

// UDPPort is an interface of a node that is a UDP port of this machine: what comes to it comes to the program, and what
// the program sends by the verdict UDP comes from there.
type UDPPort struct {
	Interface int            // the node's own number, from 1; it has no port in Node.Interfaces
	Local     netip.Addr     // of this machine; IPv4
	Port      uint16         // of that address
	Peers     []netip.Prefix // that the program may send to; none: nowhere. At most MaxUDPPeers, of IPv4
	Rate      uint64         // bytes a second that it may send, with headers from Ethernet's on; 0: not bounded
}

// check says what makes it no UDP port.
func (u UDPPort) check(w Node) error {
	switch {
	case u.Interface < 1 || u.Interface > maxUDPInterface:
		return fmt.Errorf("interface %d is not between 1 and %d", u.Interface, maxUDPInterface)
	case u.Interface <= len(w.Interfaces) && w.Interfaces[u.Interface-1] != 0:
		return fmt.Errorf("interface %d has a port, too", u.Interface)
	case !u.Local.Unmap().Is4() || u.Port == 0:
		return fmt.Errorf("%v is no IPv4 address and port", netip.AddrPortFrom(u.Local, u.Port))
	case len(u.Peers) > MaxUDPPeers:
		return fmt.Errorf("%d prefixes to send to are more than %d", len(u.Peers), MaxUDPPeers)
	}
	for _, p := range u.Peers {
		if !p.Addr().Is4() {
			return fmt.Errorf("%v is no prefix of IPv4", p)
		}
	}
	return nil
}

const maxUDPInterface = 63 // PERGOLA_INTERFACES

func (n *Nodes) checkUDP(name string, w Node) error {
	seen, taken := map[int]bool{}, map[udpName]string{}
	for other, x := range n.nodes {
		for _, u := range x.about.UDP {
			if other != name {
				taken[u.name()] = other
			}
		}
	}
	for _, u := range w.UDP {
		if err := u.check(w); err != nil {
			return fmt.Errorf("UDP port %d: %w", u.Port, err)
		}
		if whose := taken[u.name()]; whose != "" || seen[u.Interface] {
			return fmt.Errorf("UDP port %d: it, or interface %d, is that of %s", u.Port, u.Interface,
				whose)
		}
		seen[u.Interface], taken[u.name()] = true, name
	}
	return nil
}

// mapUDPOwners is that of bpf/udp.h, by which the data path finds the program.
const mapUDPOwners = "udp_owners"

// udp lists the UDP ports of a node that runs.
func (x *node) udp() []UDPPort {
	if x == nil || !x.runs {
		return nil
	}
	return x.about.UDP
}

// udpName and udpOwner are struct udp_name and struct udp_owner in bpf/udp.h.
type (
	udpName struct {
		Local, Port [4]byte // the port in the first two
	}
	udpOwner struct{ Node, Interface uint32 }
)

func (u UDPPort) name() (n udpName) {
	n.Local = u.Local.Unmap().As4()
	binary.BigEndian.PutUint16(n.Port[:], u.Port)
	return n
}

// record is the port as the node's program reads it.
func (u UDPPort) record() objectUdpPort {
	local := u.Local.Unmap().As4()
	r := objectUdpPort{
		Local: binary.NativeEndian.Uint32(local[:]), Port: networkOrder(u.Port), Number: uint16(len(u.Peers)),
	}
	for i, p := range u.Peers {
		all := ^uint32(0)
		mask := binary.BigEndian.AppendUint32(nil, uint32(uint64(all)<<(32-p.Bits())))
		r.Peers[i].Address = binary.NativeEndian.Uint32(p.Masked().Addr().AsSlice())
		r.Peers[i].Mask = binary.NativeEndian.Uint32(mask)
	}
	if u.Rate > 0 {
		const scale = 16 // METER_SCALE in bpf/meter.h
		r.Meter.PerByte = max(1, uint64(time.Second)<<scale/u.Rate)
		r.Meter.Depth = uint64(udpBurst)
	}
	return r
}

func networkOrder(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// writeUDP fills the node's table of UDP ports. By the first goes what the program gives no interface.
func (x *node) writeUDP(all []UDPPort) error {
	table := x.loaded.Maps()[objectMapNodeUdpPorts]
	for i, u := range all {
		err := table.Put(uint32(u.Interface), u.record())
		if err == nil && i == 0 {
			err = table.Put(uint32(0), objectUdpPort{Number: uint16(u.Interface)})
		}
		if err != nil {
			return fmt.Errorf("write UDP port %d: %w", u.Port, err)
		}
	}
	return nil
}

// setOwners makes UDP ports lead to a node's program, and no others.
func (n *Nodes) setOwners(number uint32, all []UDPPort) error {
	wanted := map[udpName]udpOwner{}
	for _, u := range all {
		wanted[u.name()] = udpOwner{number, uint32(u.Interface)}
	}
	return n.writeOwners(wanted, func(o udpOwner) bool { return o.Node == number })
}

// adoptOwners makes UDP ports lead to the nodes that run, and nowhere else.
func (n *Nodes) adoptOwners() error {
	wanted := map[udpName]udpOwner{}
	for _, x := range n.nodes {
		if !x.runs {
			continue
		}
		for _, u := range x.about.UDP {
			wanted[u.name()] = udpOwner{x.number, uint32(u.Interface)}
		}
	}
	return n.writeOwners(wanted, func(udpOwner) bool { return true })
}

// writeOwners makes the table say what is wanted, as far as the choice goes.
func (n *Nodes) writeOwners(wanted map[udpName]udpOwner, chosen func(udpOwner) bool) error {
	table := n.config.Maps[mapUDPOwners]
	var (
		name  udpName
		owner udpOwner
		stale []udpName
		there = table.Iterate()
	)
	for there.Next(&name, &owner) {
		if _, stays := wanted[name]; chosen(owner) && !stays {
			stale = append(stale, name)
		}
	}
	if err := there.Err(); err != nil {
		return fmt.Errorf("read where UDP ports lead: %w", err)
	}
	for _, name := range stale {
		if err := table.Delete(name); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take UDP port away: %w", err)
		}
	}
	for name, owner := range wanted {
		if err := table.Put(name, owner); err != nil {
			return fmt.Errorf("make UDP port lead to node %d: %w", owner.Node, err)
		}
	}
	return nil
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}
