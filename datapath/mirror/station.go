package mirror

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// neighbours are those on a node's legs whose MAC address its kernel knows.
type neighbours struct {
	out   sink
	ports map[int]int // the view's (newView)
	all   map[neighbourKey]neighbour

	touched touched[neighbourKey]
}

type neighbourKey struct {
	link int
	addr netip.Addr
}

type neighbour struct {
	fib.Neighbour
	generation uint32
}

// resolved are the states in which the kernel sends to a neighbour without further ado. A stale one it asks again,
// once it is used.
const resolved = unix.NUD_REACHABLE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP

// apply takes over RTM_NEWNEIGH or RTM_DELNEIGH, from a dump or as an event.
func (ns *neighbours) apply(m rtnl.Message, from origin, generation uint32) error {
	if len(m.Data) < unix.SizeofNdMsg {
		return rtnl.ErrMalformed
	}
	link := int(binary.NativeEndian.Uint32(m.Data[4:]))
	state, flags := binary.NativeEndian.Uint16(m.Data[8:]), m.Data[10]
	family := m.Data[0]
	if family != unix.AF_INET && family != unix.AF_INET6 || flags&unix.NTF_PROXY != 0 {
		return nil // a bridge's, or an address that the node answers for
	}
	k := neighbourKey{link: link}
	n := neighbour{generation: generation}
	known := false
	for a := m.Attributes(unix.SizeofNdMsg); a.Next(); {
		switch a.Kind {
		case unix.NDA_DST:
			k.addr = a.Address()
		case unix.NDA_LLADDR:
			if len(a.Value) == len(n.MAC) {
				n.MAC = [6]byte(a.Value)
				known = n.MAC[0]&1 == 0 && n.MAC != [6]byte{}
			}
		}
	}
	n.Stale = state&unix.NUD_STALE != 0
	if !k.addr.IsValid() || k.addr.IsMulticast() {
		return nil
	}
	if ns.touched.stale(k, from) {
		return nil
	}
	if m.Kind == unix.RTM_DELNEIGH || !known || state&(resolved|unix.NUD_STALE) == 0 {
		return ns.remove(k)
	}
	return ns.set(k, n)
}

func (ns *neighbours) set(k neighbourKey, n neighbour) error {
	port, ok := ns.ports[k.link]
	if !ok {
		return nil
	}
	was, known := ns.all[k]
	ns.all[k] = n
	// The programs themselves change the state of a stale neighbour, when they punt a frame. So a stale one is
	// published again.
	if known && was.Neighbour == n.Neighbour && !n.Stale {
		return nil
	}
	return ns.out.SetNeighbour(port, k.addr, n.Neighbour)
}

func (ns *neighbours) remove(k neighbourKey) error {
	if _, known := ns.all[k]; !known {
		return nil
	}
	delete(ns.all, k)
	port, ok := ns.ports[k.link]
	if !ok {
		return nil // its leg is gone, and it with the leg
	}
	return ns.out.DeleteNeighbour(port, k.addr)
}

// addresses are a node's own IPv4 addresses: frames that claim to come from them are not forwarded. (IPv6 does not
// look.) Nor are those from its links' broadcast addresses, once there was a policy rule or a route of type local,
// for as long as the node lives: from then on the kernel looks sources up in its routes (fib_has_custom_rules,
// fib_validate_source()). So these are always the kernel's.
type addresses struct {
	out sink
	all map[addressKey]uint32 // generation
	own map[netip.Addr]int    // how often each is configured
	on  map[netip.Addr]int    // or is a broadcast address of one that is

	touched touched[addressKey]
}

type addressKey struct {
	link      int
	prefix    netip.Prefix // as configured: with the host's bits
	subnet    netip.Prefix // on a point-to-point link, the other end's
	broadcast netip.Addr   // as configured; invalid: not
}

// broadcasts are the addresses to which the kernel has routes of type broadcast, or had in some version
// (fib_add_ifaddr()).
func (k addressKey) broadcasts() []netip.Addr {
	var all []netip.Addr
	if k.subnet.Bits() < 31 {
		first := k.subnet.Addr().As4()
		last := binary.BigEndian.Uint32(first[:]) | ^uint32(0)>>k.subnet.Bits()
		all = append(all, netip.AddrFrom4(first), netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil,
			last))))
	}
	if b := k.broadcast; b.Is4() && !slices.Contains(all, b) {
		all = append(all, b)
	}
	return all
}

// parseAddress reads RTM_NEWADDR or RTM_DELADDR. It is false for IPv6.
func parseAddress(m rtnl.Message) (k addressKey, ok bool, err error) {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return k, false, rtnl.ErrMalformed
	}
	if m.Data[0] != unix.AF_INET {
		return k, false, nil
	}
	var addr, peer netip.Addr
	for a := m.Attributes(unix.SizeofIfAddrmsg); a.Next(); {
		switch a.Kind {
		case unix.IFA_LOCAL:
			addr = a.Address()
		case unix.IFA_ADDRESS: // of the other end, on a point-to-point link
			peer = a.Address()
		case unix.IFA_BROADCAST:
			k.broadcast = a.Address()
		}
	}
	if !addr.IsValid() {
		addr = peer
	}
	if !peer.IsValid() {
		peer = addr
	}
	k.link, k.prefix = int(binary.NativeEndian.Uint32(m.Data[4:])), netip.PrefixFrom(addr, int(m.Data[1]))
	k.subnet, err = peer.Prefix(int(m.Data[1]))
	if !addr.Is4() || !peer.Is4() || err != nil {
		return k, false, rtnl.ErrMalformed
	}
	return k, true, nil
}

func (as *addresses) set(k addressKey, generation uint32) error {
	_, known := as.all[k]
	as.all[k] = generation
	if known {
		return nil
	}
	as.own[k.prefix.Addr()]++
	for _, addr := range append(k.broadcasts(), k.prefix.Addr()) {
		if err := as.take(addr); err != nil {
			return err
		}
	}
	return nil
}

func (as *addresses) take(addr netip.Addr) error {
	if as.on[addr]++; as.on[addr] > 1 || addr.IsLoopback() { // which nobody forwards anyway
		return nil
	}
	return as.out.SetAddress(addr)
}

// remove reports whether the node has no such address any more.
func (as *addresses) remove(k addressKey) (last bool, err error) {
	if _, known := as.all[k]; !known {
		return false, nil
	}
	delete(as.all, k)
	addr := k.prefix.Addr()
	if as.own[addr]--; as.own[addr] == 0 {
		delete(as.own, addr)
		last = true
	}
	for _, addr := range append(k.broadcasts(), addr) {
		if err := as.drop(addr); err != nil {
			return last, err
		}
	}
	return last, nil
}

func (as *addresses) drop(addr netip.Addr) error {
	if as.on[addr]--; as.on[addr] > 0 {
		return nil
	}
	delete(as.on, addr)
	if addr.IsLoopback() {
		return nil
	}
	return as.out.DeleteAddress(addr)
}

// any reports whether a link has any.
func (as *addresses) any(link int) bool {
	for k := range as.all {
		if k.link == link {
			return true
		}
	}
	return false
}
