package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// conn is a netlink socket in one namespace. Requests are serialised, as the kernel would do it.
//
// The library's Handle makes one message per attribute of a device; at a thousand devices that shows. So devices are made here,
// with all they need in one message.
type conn struct {
	sockets map[int]*nl.SocketHandle
}

func dial(ns *os.File) (*conn, error) {
	var c *conn
	err := netns.In(ns, func() (err error) {
		c, err = dialHere()
		return err
	})
	return c, err
}

// dialHere opens a socket in the namespace of the thread.
func dialHere() (*conn, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	_ = s.SetExtAck(true)                           // better errors
	_ = s.SetReceiveBufferSize(receiveBuffer, true) // one dump message of many devices
	return &conn{map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

const receiveBuffer = 1 << 20

func (c *conn) close() { c.sockets[unix.NETLINK_ROUTE].Close() }

// request starts a message; flags beside NLM_F_REQUEST.
func (c *conn) request(kind, flags int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) *nl.NetlinkRequest {
	r := &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: uint16(kind), Flags: unix.NLM_F_REQUEST | uint16(flags)},
		Sockets:  c.sockets,
	}
	r.AddData(header)
	for _, a := range attrs {
		r.AddData(a)
	}
	return r
}

// do sends a message that changes something and waits for the kernel's answer.
func (c *conn) do(kind, flags int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) error {
	_, err := c.request(kind, flags|unix.NLM_F_ACK, header, attrs...).Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// dump reads all objects of a kind. Where they change meanwhile, it reads again.
func (c *conn) dump(get, answer int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) ([][]byte, error) {
	const tries = 5
	for try := 1; ; try++ {
		all, err := c.request(get, unix.NLM_F_DUMP, header, attrs...).Execute(unix.NETLINK_ROUTE, uint16(answer))
		if !errors.Is(err, nl.ErrDumpInterrupted) || try == tries {
			return all, err
		}
	}
}

// Attributes.

func attrU8(kind int, v uint8) *nl.RtAttr   { return nl.NewRtAttr(kind, []byte{v}) }
func attrU16(kind int, v uint16) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint16Attr(v)) }
func attrU32(kind int, v uint32) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(v)) }
func attrU64(kind int, v uint64) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint64Attr(v)) }

func attrString(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

func attrBytes(kind int, b []byte) *nl.RtAttr { return nl.NewRtAttr(kind, b) }

// attrStruct holds a C struct as the kernel's header has it: fields of fixed size, padding written out.
func attrStruct(kind int, v any) *nl.RtAttr {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err) // only for a type that has no fixed size
	}
	return nl.NewRtAttr(kind, b)
}

func attrNest(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}
