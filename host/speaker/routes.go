package speaker

import (
	"encoding/binary"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// routes asks a namespace's kernel for the way to an address (RTM_GETROUTE).
type routes struct{ conn *rtnl.Conn }

func openRoutes(ns *os.File) (*routes, error) {
	c, err := rtnl.OpenIn(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &routes{c}, nil
}

// to finds the interface and the neighbour for an IPv4 address. An address of the router itself leads nowhere.
func (r *routes) to(a netip.Addr) (index int, next netip.Addr, ok bool) {
	if !a.Is4() {
		return 0, netip.Addr{}, false
	}
	question := unix.RtMsg{Family: unix.AF_INET, Dst_len: uint8(a.BitLen())}
	answer, err := r.conn.Get(unix.RTM_GETROUTE, rtnl.Encode(question), rtnl.Bytes(unix.RTA_DST, a.AsSlice()))
	if err != nil || len(answer) < unix.SizeofRtMsg {
		return 0, netip.Addr{}, false
	}
	var header unix.RtMsg
	_, err = binary.Decode(answer, binary.NativeEndian, &header)
	if err != nil || header.Type != unix.RTN_UNICAST {
		return 0, netip.Addr{}, false
	}
	next = a
	at := rtnl.Attributes(answer[unix.SizeofRtMsg:])
	for at.Next() {
		switch at.Kind {
		case unix.RTA_OIF:
			index = int(at.U32())
		case unix.RTA_GATEWAY:
			next = at.Address()
		}
	}
	return index, next, at.Err() == nil && index != 0 && next.Is4()
}

func (r *routes) close() error { return r.conn.Close() }
