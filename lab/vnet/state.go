package vnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// State is what a node's kernel says of its links, addresses and routes, in a form that can be compared with another node's:
// nothing in it depends on time.
type State struct {
	Lines []string // sorted
	// Pending says what the kernel has not finished: it takes up a carrier that came or went, and an IPv6 address,
	// a little later than it says so.
	Pending []string
}

// State reads the node's state.
func (n *Node) State() (State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := reading{up: map[uint32]bool{}, hosts: map[netip.Addr]bool{}}
	for _, part := range []struct {
		kind uint16
		head int
		read func([]byte, map[uint16][]byte)
	}{
		{unix.RTM_GETLINK, unix.SizeofIfInfomsg, r.link},
		{unix.RTM_GETROUTE, unix.SizeofRtMsg, r.route},
		{unix.RTM_GETADDR, unix.SizeofIfAddrmsg, r.address},
	} {
		all, err := n.nl.dump(part.kind, part.head)
		if err != nil {
			return State{}, fmt.Errorf("read state of node %s: %w", n.Name, err)
		}
		for _, body := range all {
			part.read(body[:part.head], attributes(body[part.head:]))
		}
	}
	slices.Sort(r.Lines)
	return r.State, nil
}

type reading struct {
	State
	up    map[uint32]bool     // interfaces, by index
	hosts map[netip.Addr]bool // addresses for which there is a local route
}

const (
	operDown = 2 // IF_OPER_DOWN, linux/if.h
	operLow  = 3 // IF_OPER_LOWERLAYERDOWN
	operUp   = 6 // IF_OPER_UP
)

func (r *reading) link(head []byte, attrs map[uint16][]byte) {
	name := unix.ByteSliceToString(attrs[unix.IFLA_IFNAME])
	flags := binary.NativeEndian.Uint32(head[8:])
	state, carrier := attrs[unix.IFLA_OPERSTATE][0], attrs[unix.IFLA_CARRIER][0]
	r.Lines = append(r.Lines, fmt.Sprintf("link %s flags %#x state %d carrier %d mtu %d address %x", name, flags, state, carrier,
		binary.NativeEndian.Uint32(attrs[unix.IFLA_MTU]), attrs[unix.IFLA_ADDRESS]))
	r.up[binary.NativeEndian.Uint32(head[4:])] = flags&unix.IFF_UP != 0
	up := flags&unix.IFF_UP != 0 && carrier != 0
	if name != "lo" && up != (state == operUp) || !up && name != "lo" && state != operDown && state != operLow {
		r.Pending = append(r.Pending, fmt.Sprintf("%s: carrier %d, state %d", name, carrier, state))
	}
}

func (r *reading) route(head []byte, attrs map[uint16][]byte) {
	if head[0] != unix.AF_INET && head[0] != unix.AF_INET6 {
		return
	}
	if to, ok := netip.AddrFromSlice(attrs[unix.RTA_DST]); ok && head[7] == unix.RTN_LOCAL && head[4] == unix.RT_TABLE_LOCAL {
		r.hosts[to] = true
	}
	delete(attrs, unix.RTA_CACHEINFO)
	r.Lines = append(r.Lines, fmt.Sprintf("route %x %v", head, sorted(attrs)))
}

func (r *reading) address(head []byte, attrs map[uint16][]byte) {
	delete(attrs, unix.IFA_CACHEINFO)
	r.Lines = append(r.Lines, fmt.Sprintf("address %x %v", head, sorted(attrs)))
	if a, ok := netip.AddrFromSlice(attrs[unix.IFA_ADDRESS]); ok && a.Is6() && r.up[binary.NativeEndian.Uint32(head[4:])] && !r.hosts[a] {
		r.Pending = append(r.Pending, fmt.Sprintf("%s has no local route", a))
	}
}

func sorted(attrs map[uint16][]byte) []string {
	var all []string
	for kind, value := range attrs {
		all = append(all, fmt.Sprintf("%d=%x", kind, value))
	}
	slices.Sort(all)
	return all
}

func attributes(b []byte) map[uint16][]byte {
	attrs := map[uint16][]byte{}
	for len(b) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			break
		}
		attrs[binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED] = b[unix.SizeofRtAttr:length]
		b = b[min(len(b), (length+3)&^3):]
	}
	return attrs
}

// dump reads all objects of a kind, of all families. Where they change meanwhile, it reads again.
func (s *socket) dump(kind uint16, head int) ([][]byte, error) {
	const tries = 10
	var err error
	for range tries {
		var all [][]byte
		if all, err = s.dumpOnce(kind, head); !errors.Is(err, unix.EINTR) {
			return all, err
		}
	}
	return nil, err
}

func (s *socket) dumpOnce(kind uint16, head int) ([][]byte, error) {
	s.seq++
	seq := s.seq
	s.seq++
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+head))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, make([]byte, 4+head)...)
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send to kernel: %w", err)
	}
	var all [][]byte
	var interrupted error
	for {
		n, _, err := unix.Recvfrom(s.fd, s.in, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("receive from kernel: %w", err)
		}
		for b := slices.Clone(s.in[:n]); len(b) >= unix.SizeofNlMsghdr; {
			length := int(binary.NativeEndian.Uint32(b))
			if binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0 {
				interrupted = unix.EINTR
			}
			switch binary.NativeEndian.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return all, interrupted
			case unix.NLMSG_ERROR:
				return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])))
			default:
				all = append(all, b[unix.SizeofNlMsghdr:length])
			}
			b = b[min(len(b), (length+3)&^3):]
		}
	}
}

// Unresolved counts the neighbours that the node is asking for their MAC address.
func (n *Node) Unresolved() (total int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, err := n.nl.dump(unix.RTM_GETNEIGH, unix.SizeofNdMsg)
	if err != nil {
		return 0, fmt.Errorf("read neighbours of node %s: %w", n.Name, err)
	}
	for _, body := range all {
		if binary.NativeEndian.Uint16(body[8:])&unix.NUD_INCOMPLETE != 0 {
			total++
		}
	}
	return total, nil
}
