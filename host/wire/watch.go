package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// watch hears of devices from the kernel.
type watch struct {
	socket *os.File
	done   chan struct{}
}

// beginning is that of the one message of a datagram, up to the family.
type beginning [unix.NLMSG_HDRLEN + 1]byte

// startWatch calls notify when a device has gone from the substrate, or when that may have been missed: a user who
// deletes an interface in his node deletes the port with it.
func startWatch(ns *os.File, notify func()) (*watch, error) {
	w, err := listen(ns, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, isDeletion, notify)
	if err != nil {
		return nil, fmt.Errorf("listen for devices that go: %w", err)
	}
	return w, nil
}

// WatchInterfaces calls changed when an interface of the machine has come, gone or changed, or its driver takes from
// XDP what it did not, or no longer does. The machine's namespace is the thread's. Linux before 6.3 does not tell of
// drivers.
func WatchInterfaces(changed func()) (stop func() error, err error) {
	ns, err := netns.Here()
	if err != nil {
		return nil, fmt.Errorf("listen for changes of interfaces: %w", err)
	}
	defer ns.Close()
	links, err := listen(ns, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, isOfDevice, changed)
	if err != nil {
		return nil, fmt.Errorf("listen for changes of interfaces: %w", err)
	}
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return links.close, nil
	}
	for _, group := range family.Groups {
		if group.Name != "mgmt" {
			continue
		}
		drivers, err := listen(ns, unix.NETLINK_GENERIC, int(group.ID), func(beginning) bool { return true },
			changed)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for changes of drivers: %w", err), links.close())
		}
		return func() error { return errors.Join(links.close(), drivers.close()) }, nil
	}
	return links.close, nil
}

// listen calls notify for each notification that is relevant, and when one may have been lost.
func listen(ns *os.File, protocol, group int, relevant func(beginning) bool, notify func()) (*watch, error) {
	w := &watch{done: make(chan struct{})}
	var err error
	if w.socket, err = rtnl.Listen(ns, protocol, group); err != nil {
		return nil, err
	}
	go w.run(relevant, notify)
	return w, nil
}

func (w *watch) run(relevant func(beginning) bool, notify func()) {
	defer close(w.done)
	socket, err := w.socket.SyscallConn()
	if err != nil {
		return // closed already
	}
	for {
		var begin beginning // the rest is cut off
		var err error
		closed := socket.Read(func(fd uintptr) (done bool) {
			_, _, err = unix.Recvfrom(int(fd), begin[:], 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case closed != nil:
			return
		case errors.Is(err, unix.ENOBUFS), err == nil && relevant(begin):
			notify()
		case err != nil && !errors.Is(err, unix.EINTR):
			return // the periodic observation finds what was removed
		}
	}
}

// isDeletion is false for a port that only left its bridge: that notification has family AF_BRIDGE.
func isDeletion(begin beginning) bool {
	return binary.NativeEndian.Uint16(begin[4:]) == unix.RTM_DELLINK && isOfDevice(begin)
}

func isOfDevice(begin beginning) bool { return begin[unix.NLMSG_HDRLEN] == unix.AF_UNSPEC }

// close ends it: the socket would keep the namespace.
func (w *watch) close() error {
	err := w.socket.Close()
	<-w.done
	return err
}
