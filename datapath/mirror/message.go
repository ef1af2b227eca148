package mirror

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// errMalformed means bytes that are no rtnetlink messages: a kernel that this parser does not understand.
var errMalformed = errors.New("malformed netlink message")

// message is one netlink message. Its data points into the buffer that it was read into.
type message struct {
	kind  uint16
	flags uint16
	seq   uint32 // of the request that it answers, or that caused it
	data  []byte // behind the netlink header
}

// nextMessage cuts the first message off.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return m, nil, errMalformed
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < unix.NLMSG_HDRLEN || size > len(b) {
		return m, nil, errMalformed
	}
	m = message{
		kind:  binary.NativeEndian.Uint16(b[4:]),
		flags: binary.NativeEndian.Uint16(b[6:]),
		seq:   binary.NativeEndian.Uint32(b[8:]),
		data:  b[unix.NLMSG_HDRLEN:size],
	}
	return m, b[min(align(size), len(b)):], nil
}

// refusal is why the kernel does not answer a request for a dump (NLMSG_ERROR). Of what it does not have, as IPv6 or next-hop objects, it has
// nothing to tell: that is no error.
func (m message) refusal() error {
	if len(m.data) < 4 {
		return errMalformed
	}
	no := unix.Errno(-int32(binary.NativeEndian.Uint32(m.data)))
	if no == unix.EOPNOTSUPP || no == unix.EAFNOSUPPORT {
		return nil
	}
	return no
}

func align(n int) int { return (n + 3) &^ 3 }

// attributes walks over the attributes of a message, or over those inside an attribute:
//
//	for a := (attributes{rest: b}); a.next(); { switch a.kind { ... a.value } }
type attributes struct {
	kind  uint16
	value []byte
	rest  []byte
	whole []byte // the attribute with its header
}

// next is false at the end, and where the bytes make no sense: what is behind is as if it were not there, and the caller misses what
// it needs.
func (a *attributes) next() bool {
	if len(a.rest) < unix.SizeofRtAttr {
		return false
	}
	size := int(binary.NativeEndian.Uint16(a.rest))
	if size < unix.SizeofRtAttr || size > len(a.rest) {
		return false
	}
	a.kind = binary.NativeEndian.Uint16(a.rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.whole = a.rest[:size]
	a.value = a.rest[unix.SizeofRtAttr:size]
	a.rest = a.rest[min(align(size), len(a.rest)):]
	return true
}

// u32 is the value as a number; 0 if it is none.
func (a *attributes) u32() uint32 {
	if len(a.value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.value)
}

// address is the value as an address; invalid if it is none.
func (a *attributes) address() netip.Addr {
	addr, _ := netip.AddrFromSlice(a.value)
	return addr
}

// body skips the fixed part of a message.
func (m message) body(size int) attributes {
	if len(m.data) < size {
		return attributes{}
	}
	return attributes{rest: m.data[size:]}
}
