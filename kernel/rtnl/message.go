package rtnl

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// ErrMalformed means bytes that are no netlink messages or attributes.
var ErrMalformed = errors.New("malformed netlink message")

// Message is one netlink message (struct nlmsghdr, linux/netlink.h). Its data points into the buffer that it was read
// into.
type Message struct {
	Kind, Flags uint16
	Seq         uint32 // of the request that it answers, or that caused it
	Data        []byte // behind the header
}

// NextMessage cuts the first message off. It fails with ErrMalformed.
func NextMessage(b []byte) (m Message, rest []byte, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return m, nil, ErrMalformed
	}
	size := int(native.Uint32(b))
	if size < unix.NLMSG_HDRLEN || size > len(b) {
		return m, nil, ErrMalformed
	}
	m = Message{
		Kind: native.Uint16(b[4:]), Flags: native.Uint16(b[6:]), Seq: native.Uint32(b[8:]),
		Data: b[unix.NLMSG_HDRLEN:size],
	}
	return m, b[min(Align(size), len(b)):], nil
}

// Attributes skips the fixed part of the message, of so many bytes. A shorter message has no attributes.
func (m Message) Attributes(header int) Attrs {
	if len(m.Data) < header {
		return Attrs{bad: true}
	}
	return Attributes(m.Data[header:])
}

// Errno is the result that an NLMSG_ERROR or NLMSG_DONE carries; 0 is success.
func (m Message) Errno() unix.Errno {
	if len(m.Data) < 4 {
		return unix.EPROTO
	}
	if code := int32(native.Uint32(m.Data)); code != math.MinInt32 && code < 0 {
		return unix.Errno(-code)
	}
	return 0
}

// Request encodes a message. Flags are those besides NLM_F_REQUEST; header is the fixed part. Conn writes the
// sequence number when it sends the message.
func Request(kind, flags uint16, header []byte, attrs ...Attr) []byte {
	size := unix.NLMSG_HDRLEN + Align(len(header))
	for _, a := range attrs {
		size += len(a)
	}
	b := make([]byte, 0, size)
	b = native.AppendUint32(b, uint32(size))
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number and port
	b = pad(append(b, header...))
	for _, a := range attrs {
		b = append(b, a...)
	}
	return b
}

// SetSequence writes the sequence number of an encoded message.
func SetSequence(request []byte, seq uint32) { native.PutUint32(request[8:], seq) }
