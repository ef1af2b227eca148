package wire

import (
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// conn is a netlink socket in one namespace. Requests of several goroutines take turns.
//
// The library's Handle sends one message per attribute of a device; at a thousand devices that shows. So devices are
// made with all they need in one message. The library encodes and decodes headers, package rtnl attributes.
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

// do sends a message that changes something and waits for the kernel's answer.
func (c *conn) do(kind, flags uint16, header nl.NetlinkRequestData, attrs ...rtnl.Attr) error {
	return c.Do(kind, flags, header.Serialize(), attrs...)
}

// get asks for one object.
func (c *conn) get(kind uint16, header nl.NetlinkRequestData, attrs ...rtnl.Attr) ([]byte, error) {
	return c.Get(kind, header.Serialize(), attrs...)
}

// dump reads all objects of a kind. Where they change meanwhile, it reads them anew.
func (c *conn) dump(get, answer uint16, header nl.NetlinkRequestData, attrs ...rtnl.Attr) ([][]byte, error) {
	return c.Dump(get, answer, header.Serialize(), attrs...)
}
