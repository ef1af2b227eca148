package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/netns"
)

// watch hears of the devices that go from the substrate: a user who deletes an interface in his node deletes the port with it.
type watch struct {
	socket *os.File
	done   chan struct{}
}

// startWatch calls tell when a device has gone, or when that may have been missed.
func startWatch(ns *os.File, tell func()) (*watch, error) {
	w := &watch{done: make(chan struct{})}
	err := netns.In(ns, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		w.socket = os.NewFile(uintptr(fd), "netlink")
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_LINK - 1)})
	})
	if err != nil {
		if w.socket != nil {
			_ = w.socket.Close()
		}
		return nil, fmt.Errorf("listen for devices that go: %w", err)
	}
	go w.run(tell)
	return w, nil
}

func (w *watch) run(tell func()) {
	defer close(w.done)
	socket, err := w.socket.SyscallConn()
	if err != nil {
		return // closed already
	}
	for {
		var begin [unix.NLMSG_HDRLEN + 1]byte // of the one message of a datagram, up to the family; the rest of it is cut off
		var err error
		closed := socket.Read(func(fd uintptr) (done bool) {
			_, _, err = unix.Recvfrom(int(fd), begin[:], 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case closed != nil:
			return
		case errors.Is(err, unix.ENOBUFS), err == nil && isDeletion(begin):
			tell()
		case err != nil && !errors.Is(err, unix.EINTR):
			return // who looks now and then will find what has gone
		}
	}
}

// isDeletion is not true of a port that only left its bridge, of which family AF_BRIDGE tells.
func isDeletion(begin [unix.NLMSG_HDRLEN + 1]byte) bool {
	return binary.NativeEndian.Uint16(begin[4:]) == unix.RTM_DELLINK && begin[unix.NLMSG_HDRLEN] == unix.AF_UNSPEC
}

// close ends it: the socket would keep the namespace.
func (w *watch) close() error {
	err := w.socket.Close()
	<-w.done
	return err
}
