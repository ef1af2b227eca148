package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Addresses that we add carry a protocol number of ours (IFA_PROTO, Linux 5.18), so that we take away our own only.
const (
	addressProtocol = 0x50
	attrIFAProto    = 11 // IFA_PROTO, linux/if_addr.h
)

// addAddresses adds what is not there.
func (c *conn) addAddresses(index int, addresses []netip.Prefix) error {
	for _, a := range addresses {
		err := c.changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, a)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	return nil
}

// setAddresses adds what is missing, by interface, and then deletes those of ours that are not wanted any more: an
// interface that lost its last address would lose all its routes, a daemon's too.
func (c *conn) setAddresses(want map[int][]netip.Prefix) error {
	for index, addresses := range want {
		if err := c.addAddresses(index, addresses); err != nil {
			return err
		}
	}
	ours, err := c.ourAddresses()
	if err != nil {
		return err
	}
	for index, addresses := range ours {
		for _, a := range addresses {
			if slices.Contains(want[index], a) {
				continue
			}
			err := c.changeAddress(unix.RTM_DELADDR, 0, index, a)
			if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("delete address %s: %w", a, err)
			}
		}
	}
	return nil
}

func (c *conn) changeAddress(kind, flags uint16, index int, a netip.Prefix) error {
	h := nl.NewIfAddrmsg(unix.AF_INET)
	if a.Addr().Is6() {
		h.Family = unix.AF_INET6
	}
	h.Index = uint32(index)
	h.Prefixlen = uint8(a.Bits())
	raw := a.Addr().AsSlice()
	attrs := []rtnl.Attr{
		rtnl.Bytes(unix.IFA_LOCAL, raw), rtnl.Bytes(unix.IFA_ADDRESS, raw),
		rtnl.U32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_PERMANENT), rtnl.U8(attrIFAProto, addressProtocol),
	}
	if b, ok := broadcastOf(a); ok {
		attrs = append(attrs, rtnl.Bytes(unix.IFA_BROADCAST, b.AsSlice()))
	}
	return c.do(kind, flags, h, attrs...)
}

// broadcastOf is the last address of an IPv4 subnet that has one: not of a /31 (RFC 3021) or /32.
func broadcastOf(a netip.Prefix) (netip.Addr, bool) {
	if !a.Addr().Is4() || a.Bits() > 30 {
		return netip.Addr{}, false
	}
	b := a.Addr().As4()
	for i := a.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b), true
}

// address is one of an interface.
type address struct {
	netip.Prefix
	index    int
	protocol uint8
	scope    uint8
	flags    uint32
}

// addresses lists those of all interfaces of this namespace.
func (c *conn) addresses() ([]address, error) {
	messages, err := c.dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var all []address
	for _, message := range messages {
		a, err := parseAddress(message)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		if a.IsValid() {
			all = append(all, a)
		}
	}
	return all, nil
}

func parseAddress(message []byte) (a address, err error) {
	h := nl.DeserializeIfAddrmsg(message)
	a.index, a.scope, a.flags = int(h.Index), h.Scope, uint32(h.Flags)
	var ip, local netip.Addr
	attrs := rtnl.Attributes(message[h.Len():])
	for attrs.Next() {
		switch attrs.Kind {
		case unix.IFA_ADDRESS:
			ip = attrs.Address()
		case unix.IFA_LOCAL:
			local = attrs.Address()
		case unix.IFA_FLAGS:
			a.flags = attrs.U32()
		case attrIFAProto:
			a.protocol = attrs.U8()
		}
	}
	if local.IsValid() { // IPv6 has only IFA_ADDRESS
		ip = local
	}
	a.Prefix = netip.PrefixFrom(ip, int(h.Prefixlen))
	return a, attrs.Err()
}

// ourAddresses lists what we added in this namespace, by interface.
func (c *conn) ourAddresses() (map[int][]netip.Prefix, error) {
	all, err := c.addresses()
	if err != nil {
		return nil, err
	}
	ours := map[int][]netip.Prefix{}
	for _, a := range all {
		if a.protocol == addressProtocol {
			ours[a.index] = append(ours[a.index], a.Prefix)
		}
	}
	return ours, nil
}
