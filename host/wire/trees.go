package wire

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// treeCache has the qdisc trees of the substrate's devices as they were last read. The kernel notifies of each change
// of a qdisc or a class, by whomever (RTNLGRP_TC), except of qdiscs that go with their device or with its move to
// another namespace. So a device is read again after a notification, and when its root qdisc is of another kind than
// the one that was read. After notifications were lost, all devices are read.
//
// Notifications wait in the socket until somebody asks for trees. What changes after that is found by the next call.
type treeCache struct {
	mu    sync.Mutex // guards all below
	news  *os.File
	trees map[int]readTree // by ifindex; of devices that have no qdisc of ours or others, there is none
}

type readTree struct {
	wiring.Tree
	root string // kind of the root qdisc
}

// treeBuffer is how many bytes of notifications the kernel keeps: those of a few hundred qdiscs and classes. When a
// slice of many links is made more are lost, and all trees are read, as most are new.
const treeBuffer = 1 << 20

func openTreeCache(ns *os.File) (*treeCache, error) {
	news, err := rtnl.Listen(ns, unix.NETLINK_ROUTE, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("listen for changes of qdiscs: %w", err)
	}
	c := &treeCache{news: news, trees: map[int]readTree{}}
	err = c.control(func(fd int) error {
		return rtnl.SetReceiveBuffer(fd, treeBuffer)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for changes of qdiscs: %w", err), c.close())
	}
	return c, nil
}

// close ends it: the socket would keep the namespace.
func (c *treeCache) close() error { return c.news.Close() }

func (c *treeCache) control(f func(fd int) error) error {
	socket, err := c.news.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = socket.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// freshen drops what has changed since the last call. Devices must be listed after it, and given to read.
func (c *treeCache) freshen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	buffer := make([]byte, 64<<10) // more than the kernel puts into a notification
	return c.control(func(fd int) error {
		for {
			n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_TRUNC)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return nil
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.ENOBUFS):
				clear(c.trees)
			case err != nil:
				return fmt.Errorf("read changes of qdiscs: %w", err)
			case n > len(buffer) || !c.changed(buffer[:n]):
				clear(c.trees)
			}
		}
	})
}

// changed drops the trees of the devices of a notification; ok is false where it cannot be read.
func (c *treeCache) changed(datagram []byte) (ok bool) {
	for len(datagram) > 0 {
		m, rest, err := rtnl.NextMessage(datagram)
		if err != nil {
			return false
		}
		datagram = rest
		switch m.Kind {
		case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS:
			if len(m.Data) < nl.SizeofTcMsg {
				return false
			}
			delete(c.trees, int(nl.DeserializeTcMsg(m.Data).Ifindex))
		}
	}
	return true
}

// read gives the trees of devices. What is not known of them is read from the kernel.
func (c *treeCache) read(kernel *conn, devices []device) (map[int]wiring.Tree, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there, unread := make(map[int]bool, len(devices)), map[int]string{}
	for _, d := range devices {
		if !d.ofOurKind() || !d.queues() {
			continue
		}
		there[d.index] = true
		if t, known := c.trees[d.index]; !known || t.root != d.qdisc {
			unread[d.index] = d.qdisc
		}
	}
	maps.DeleteFunc(c.trees, func(index int, _ readTree) bool { return !there[index] })
	if err := c.fill(kernel, unread); err != nil {
		return nil, err
	}
	trees := make(map[int]wiring.Tree, len(c.trees))
	for index, t := range c.trees {
		trees[index] = t.Tree
	}
	return trees, nil
}

// fill reads the trees of some devices: of few one by one, of many out of a list of all qdiscs.
func (c *treeCache) fill(kernel *conn, unread map[int]string) error {
	const few = 32
	all := map[int][]qdisc{}
	if len(unread) > few {
		var err error
		if all, err = kernel.qdiscs(); err != nil {
			return err
		}
	}
	for index, root := range unread {
		var tree wiring.Tree
		var err error
		if len(unread) > few {
			tree, err = kernel.treeOf(index, all[index])
		} else {
			tree, err = kernel.tree(index)
		}
		if err != nil {
			return err
		}
		c.trees[index] = readTree{tree, root}
	}
	return nil
}
