package vnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// State is what a node's kernel says of its links, addresses and routes, in a form that can be compared with another
// node's: nothing in it depends on time.
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
		all, err := n.dump(part.kind, part.head)
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
	r.Lines = append(r.Lines, fmt.Sprintf("link %s flags %#x state %d carrier %d mtu %d address %x", name, flags,
		state, carrier, binary.NativeEndian.Uint32(attrs[unix.IFLA_MTU]), attrs[unix.IFLA_ADDRESS]))
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
	if to, ok := netip.AddrFromSlice(attrs[unix.RTA_DST]); ok && head[7] == unix.RTN_LOCAL &&
		head[4] == unix.RT_TABLE_LOCAL {
		r.hosts[to] = true
	}
	delete(attrs, unix.RTA_CACHEINFO)
	r.Lines = append(r.Lines, fmt.Sprintf("route %x %v", head, sorted(attrs)))
}

func (r *reading) address(head []byte, attrs map[uint16][]byte) {
	delete(attrs, unix.IFA_CACHEINFO)
	r.Lines = append(r.Lines, fmt.Sprintf("address %x %v", head, sorted(attrs)))
	if a, ok := netip.AddrFromSlice(attrs[unix.IFA_ADDRESS]); ok && a.Is6() &&
		r.up[binary.NativeEndian.Uint32(head[4:])] && !r.hosts[a] {
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
	for a := rtnl.Attributes(b); a.Next(); {
		attrs[a.Kind] = a.Value
	}
	return attrs
}

// dump lists all objects of a kind, of all families.
func (n *Node) dump(get uint16, header int) ([][]byte, error) {
	return n.nl.Dump(get, answers[get], make([]byte, header))
}

// answers are the kinds of message that lists consist of.
var answers = map[uint16]uint16{
	unix.RTM_GETLINK: unix.RTM_NEWLINK, unix.RTM_GETROUTE: unix.RTM_NEWROUTE,
	unix.RTM_GETADDR: unix.RTM_NEWADDR, unix.RTM_GETNEIGH: unix.RTM_NEWNEIGH,
}

// Unresolved counts the neighbours that the node is asking for their MAC address.
func (n *Node) Unresolved() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, err := n.unresolved()
	return len(all), err
}

// GiveUp ends the questions for neighbours that have not answered, as the kernel does when their time is over: each
// packet that waited for an answer becomes an ICMP error.
func (n *Node) GiveUp() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, err := n.unresolved()
	if err != nil {
		return err
	}
	for _, body := range all {
		head := slices.Clone(body[:unix.SizeofNdMsg])
		binary.NativeEndian.PutUint16(head[8:], unix.NUD_FAILED)
		address := attributes(body[unix.SizeofNdMsg:])[unix.NDA_DST]
		err := n.nl.Do(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE, head, rtnl.Bytes(unix.NDA_DST, address))
		if err != nil {
			return fmt.Errorf("give up neighbour %x of node %s: %w", address, n.Name, err)
		}
	}
	return nil
}

func (n *Node) unresolved() ([][]byte, error) {
	all, err := n.dump(unix.RTM_GETNEIGH, unix.SizeofNdMsg)
	if err != nil {
		return nil, fmt.Errorf("read neighbours of node %s: %w", n.Name, err)
	}
	return slices.DeleteFunc(all, func(body []byte) bool {
		return binary.NativeEndian.Uint16(body[8:])&unix.NUD_INCOMPLETE == 0
	}), nil
}
