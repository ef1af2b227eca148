package vnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Change is something to tell a node's kernel: one of the types of this file.
type Change interface {
	message(n *Node) (message, error)
	fmt.Stringer
}

// Changes of routes.
type (
	// AddRoute adds a route; it is an error if there is one of the same prefix and metric.
	AddRoute struct{ Route }
	// ReplaceRoute adds a route, or replaces the one of the same prefix and metric.
	ReplaceRoute struct{ Route }
	// DeleteRoute deletes a route.
	DeleteRoute struct{ Route }
)

// Changes of addresses.
type (
	// AddAddress gives an interface an address.
	AddAddress struct {
		Interface string
		Prefix    netip.Prefix
	}
	// DeleteAddress takes it away.
	DeleteAddress struct {
		Interface string
		Prefix    netip.Prefix
	}
)

// Changes of neighbours.
type (
	// SetNeighbour adds or replaces a neighbour.
	SetNeighbour struct{ Neighbour }
	// DeleteNeighbour deletes the neighbour of that address.
	DeleteNeighbour struct{ Neighbour }
)

// Changes of interfaces.
type (
	// Resolve says how neighbours on the interface are asked for: so often, and so long after one another.
	Resolve struct {
		Interface  string
		IPv6       bool
		Times      int
		Wait       time.Duration // not less than 10 ms
		QueueBytes int           // what waits for the answer meanwhile
	}
	// SetLink sets an interface up or down, as an administrator would.
	SetLink struct {
		Interface string
		Up        bool
	}
	// SetMTU sets an interface's MTU.
	SetMTU struct {
		Interface string
		MTU       int
	}
)

func (c AddRoute) String() string     { return "route add " + c.Route.String() }
func (c ReplaceRoute) String() string { return "route replace " + c.Route.String() }
func (c DeleteRoute) String() string  { return "route delete " + c.Route.String() }
func (c AddAddress) String() string {
	return fmt.Sprintf("address add %s dev %s", c.Prefix, c.Interface)
}
func (c DeleteAddress) String() string {
	return fmt.Sprintf("address delete %s dev %s", c.Prefix, c.Interface)
}
func (c SetNeighbour) String() string { return "neigh replace " + c.Neighbour.String() }
func (c DeleteNeighbour) String() string {
	return fmt.Sprintf("neigh delete %s dev %s", c.Address, c.Interface)
}
func (c SetLink) String() string {
	if c.Up {
		return "link set " + c.Interface + " up"
	}
	return "link set " + c.Interface + " down"
}
func (c Resolve) String() string {
	return fmt.Sprintf("resolve neighbours on %s %d times, %v each", c.Interface, c.Times, c.Wait)
}
func (c SetMTU) String() string { return fmt.Sprintf("link set %s mtu %d", c.Interface, c.MTU) }

func (c AddRoute) message(n *Node) (message, error) {
	return c.Route.message(n, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

func (c ReplaceRoute) message(n *Node) (message, error) {
	return c.Route.message(n, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

func (c DeleteRoute) message(n *Node) (message, error) {
	return c.Route.message(n, unix.RTM_DELROUTE, 0)
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (r Route) message(n *Node, kind, flags uint16) (message, error) {
	what, scope := r.Kind, uint8(unix.RT_SCOPE_UNIVERSE)
	if what == 0 {
		what = unix.RTN_UNICAST
	}
	if len(r.Hops) > 0 && !r.Hops[0].Via.IsValid() {
		scope = unix.RT_SCOPE_LINK
	}
	if kind == unix.RTM_DELROUTE {
		scope = unix.RT_SCOPE_NOWHERE // of any
	}
	m := message{kind: kind, flags: flags}
	m.body = append(m.body, family(r.To.Addr()), uint8(r.To.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC,
		scope, what, 0, 0, 0, 0)
	m.attr(unix.RTA_DST, r.To.Masked().Addr().AsSlice())
	if r.Metric != 0 {
		m.attrU32(unix.RTA_PRIORITY, uint32(r.Metric))
	}
	if r.Source.IsValid() {
		m.attr(unix.RTA_PREFSRC, r.Source.AsSlice())
	}
	if r.Object != 0 {
		m.attrU32(routeObject, r.Object)
	}
	if len(r.Hops) > 1 {
		return m, r.multipath(n, &m)
	}
	for _, h := range r.Hops {
		if err := h.attrs(n, r, &m); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (h Hop) attrs(n *Node, r Route, m *message) error {
	if h.Interface != "" {
		index, err := n.Index(h.Interface)
		if err != nil {
			return err
		}
		m.attrU32(unix.RTA_OIF, uint32(index))
	}
	h.gateway(r, m)
	return nil
}

func (h Hop) gateway(r Route, m *message) {
	switch {
	case !h.Via.IsValid():
	case h.Via.Is4() == r.To.Addr().Is4():
		m.attr(unix.RTA_GATEWAY, h.Via.AsSlice())
	default: // struct rtvia
		m.attr(unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, uint16(family(h.Via))),
			h.Via.AsSlice()...))
	}
}

// multipath writes struct rtnexthop for each hop (linux/rtnetlink.h).
func (r Route) multipath(n *Node, m *message) error {
	var all message
	for _, h := range r.Hops {
		index := 0
		if h.Interface != "" {
			var err error
			if index, err = n.Index(h.Interface); err != nil {
				return err
			}
		}
		var via message
		h.gateway(r, &via)
		all.body = binary.NativeEndian.AppendUint16(all.body, uint16(unix.SizeofRtNexthop+len(via.body)))
		all.body = append(all.body, 0, uint8(max(h.Weight, 1)-1))
		all.body = binary.NativeEndian.AppendUint32(all.body, uint32(index))
		all.body = append(all.body, via.body...)
	}
	m.attr(unix.RTA_MULTIPATH, all.body)
	return nil
}

func (c AddAddress) message(n *Node) (message, error) {
	return addressMessage(n, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, c.Interface, c.Prefix)
}

func (c DeleteAddress) message(n *Node) (message, error) {
	return addressMessage(n, unix.RTM_DELADDR, 0, c.Interface, c.Prefix)
}

func addressMessage(n *Node, kind, flags uint16, name string, p netip.Prefix) (message, error) {
	index, err := n.Index(name)
	if err != nil {
		return message{}, err
	}
	m := message{kind: kind, flags: flags}
	m.body = append(m.body, family(p.Addr()), uint8(p.Bits()), unix.IFA_F_PERMANENT|unix.IFA_F_NODAD,
		unix.RT_SCOPE_UNIVERSE)
	m.body = binary.NativeEndian.AppendUint32(m.body, uint32(index))
	m.attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	m.attr(unix.IFA_ADDRESS, p.Addr().AsSlice())
	return m, nil
}

func (c SetNeighbour) message(n *Node) (message, error) {
	state := c.State
	if state == 0 {
		state = unix.NUD_PERMANENT
	}
	m, err := neighbourMessage(n, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, c.Neighbour, state)
	if len(c.MAC) > 0 {
		m.attr(unix.NDA_LLADDR, c.MAC)
	}
	return m, err
}

func (c DeleteNeighbour) message(n *Node) (message, error) {
	return neighbourMessage(n, unix.RTM_DELNEIGH, 0, c.Neighbour, 0)
}

func neighbourMessage(n *Node, kind, flags uint16, b Neighbour, state int) (message, error) {
	index, err := n.Index(b.Interface)
	if err != nil {
		return message{}, err
	}
	m := message{kind: kind, flags: flags}
	m.body = append(m.body, family(b.Address), 0, 0, 0)
	m.body = binary.NativeEndian.AppendUint32(m.body, uint32(index))
	m.body = binary.NativeEndian.AppendUint16(m.body, uint16(state))
	m.body = append(m.body, 0, 0)
	m.attr(unix.NDA_DST, b.Address.AsSlice())
	return m, nil
}

func (c SetLink) message(n *Node) (message, error) {
	flags := uint32(0)
	if c.Up {
		flags = unix.IFF_UP
	}
	return linkMessage(n, c.Interface, flags, unix.IFF_UP)
}

func (c SetMTU) message(n *Node) (message, error) {
	m, err := linkMessage(n, c.Interface, 0, 0)
	m.attrU32(unix.IFLA_MTU, uint32(c.MTU))
	return m, err
}

// Attributes of neighbour tables, from linux/neighbour.h.
const (
	tableName    = 1  // NDTA_NAME
	tableParms   = 6  // NDTA_PARMS
	parmIfindex  = 1  // NDTPA_IFINDEX
	parmRetrans  = 5  // NDTPA_RETRANS_TIME
	parmMcast    = 11 // NDTPA_MCAST_PROBES
	parmQueueLen = 16 // NDTPA_QUEUE_LENBYTES
)

func (c Resolve) message(n *Node) (message, error) {
	index, err := n.Index(c.Interface)
	if err != nil {
		return message{}, err
	}
	m := message{kind: unix.RTM_SETNEIGHTBL}
	table := "arp_cache\x00"
	m.body = append(m.body, unix.AF_INET, 0, 0, 0)
	if c.IPv6 {
		m.body[0], table = unix.AF_INET6, "ndisc_cache\x00"
	}
	var parms message
	parms.attrU32(parmIfindex, uint32(index))
	parms.attr(parmRetrans, binary.NativeEndian.AppendUint64(nil, uint64(c.Wait.Milliseconds())))
	parms.attrU32(parmMcast, uint32(c.Times))
	parms.attrU32(parmQueueLen, uint32(c.QueueBytes))
	m.attr(tableName, []byte(table))
	m.attr(tableParms, parms.body)
	return m, nil
}

func linkMessage(n *Node, name string, flags, change uint32) (message, error) {
	index, err := n.Index(name)
	if err != nil {
		return message{}, err
	}
	m := message{kind: unix.RTM_NEWLINK}
	m.body = append(m.body, unix.AF_UNSPEC, 0, 0, 0)
	for _, v := range []uint32{uint32(index), flags, change} {
		m.body = binary.NativeEndian.AppendUint32(m.body, v)
	}
	return m, nil
}
