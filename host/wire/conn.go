package wire

import (
	"encoding/binary"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// conn is a netlink socket in one namespace. Requests of several goroutines take turns.
//
// The library's Handle sends one message per attribute of a device; at a thousand devices that shows. So devices are made with
// all they need in one message; the library encodes headers and attributes.
type conn struct {
	*rtnl.Conn
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
	c, err := rtnl.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	_ = c.SetReceiveBuffer(receiveBuffer) // one dump message of many devices
	return &conn{c}, nil
}

const receiveBuffer = 1 << 20

func (c *conn) close() { _ = c.Close() }

func encoded(attrs []*nl.RtAttr) (all []rtnl.Attr) {
	for _, a := range attrs {
		all = append(all, a.Serialize())
	}
	return all
}

// do sends a message that changes something and waits for the kernel's answer.
func (c *conn) do(kind, flags int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) error {
	return c.Do(uint16(kind), uint16(flags), header.Serialize(), encoded(attrs)...)
}

// get asks for one object.
func (c *conn) get(kind int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) ([]byte, error) {
	return c.Get(uint16(kind), header.Serialize(), encoded(attrs)...)
}

// dump reads all objects of a kind. Where they change meanwhile, it reads them anew.
func (c *conn) dump(get, answer int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) ([][]byte, error) {
	return c.Dump(uint16(get), uint16(answer), header.Serialize(), encoded(attrs)...)
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
