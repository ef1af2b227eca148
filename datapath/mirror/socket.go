package mirror

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The kernel's memory for events that are not yet read, per node. 32 MiB held the notifications of 50,000 routes
// added at 57,000 a second without a reader; only what waits takes memory.
const receiveBuffer = 32 << 20

// groups have the events of everything that a view is made of.
var groups = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_IPV4_ROUTE,
	unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEIGH,
}

var (
	// errOverrun means that the kernel had to drop events, because they came faster than they were read.
	errOverrun = errors.New("the kernel's events came faster than they were read, and some are lost")
	// errForeign means a datagram that is not the kernel's. Root in the node may send to a group, as the kernel
	// does.
	errForeign = errors.New("a process in the node sends netlink messages in the kernel's place")
)

// socket is a netlink route socket in a node's namespace. It belongs to the namespace for good and may be used
// anywhere.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	seq  uint32 // of the last request
}

// openSocket opens a socket in the namespace. It receives no event before subscribe.
func openSocket(ns *os.File, buffer int) (*socket, error) {
	fd := -1
	err := netns.In(ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netlink")}
	if err := s.prepare(fd, buffer); err != nil {
		_ = s.file.Close()
		return nil, fmt.Errorf("prepare netlink socket: %w", err)
	}
	return s, nil
}

func (s *socket) prepare(fd, buffer int) error {
	// It gets a port, to which the kernel alone can send: others are refused at a connected socket
	// (netlink_getsockbyportid()). They can still send to groups.
	if err := unix.Connect(fd, rtnl.Kernel()); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
		return err
	}
	// Of routes, dumps then leave out cached exceptions.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return err
	}
	var err error
	s.raw, err = s.file.SyscallConn()
	return err
}

func (s *socket) close() { _ = s.file.Close() }

// subscribe makes the socket receive all events, or none.
func (s *socket) subscribe(on bool) error {
	option := unix.NETLINK_ADD_MEMBERSHIP
	if !on {
		option = unix.NETLINK_DROP_MEMBERSHIP
	}
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		for _, g := range groups {
			err := unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, g)
			if err != nil {
				failed = fmt.Errorf("subscribe to netlink group %d: %w", g, err)
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// request asks for a part of a dump.
func (s *socket) request(p part) error {
	kind, body := p.request()
	s.seq++
	b := rtnl.Request(kind, unix.NLM_F_DUMP, body)
	rtnl.SetSequence(b, s.seq)
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, rtnl.Kernel())
		return !errors.Is(failed, unix.EAGAIN)
	})
	return errors.Join(err, failed)
}

// request is what a part is asked for with: the type, and the fixed part of the message with its family.
func (p part) request() (kind uint16, body []byte) {
	family, size := byte(unix.AF_UNSPEC), 0
	switch p {
	case partLinks:
		kind, size = unix.RTM_GETLINK, unix.SizeofIfInfomsg
	case partNetconf4:
		kind, size, family = unix.RTM_GETNETCONF, sizeofNetconf, unix.AF_INET
	case partNetconf6:
		kind, size, family = unix.RTM_GETNETCONF, sizeofNetconf, unix.AF_INET6
	case partAddresses:
		kind, size, family = unix.RTM_GETADDR, unix.SizeofIfAddrmsg, unix.AF_INET
	case partObjects:
		kind, size = unix.RTM_GETNEXTHOP, sizeofNHMsg
	case partRoutes4:
		kind, size, family = unix.RTM_GETROUTE, unix.SizeofRtMsg, unix.AF_INET
	case partRoutes6:
		kind, size, family = unix.RTM_GETROUTE, unix.SizeofRtMsg, unix.AF_INET6
	case partNeighbours:
		kind, size = unix.RTM_GETNEIGH, unix.SizeofNdMsg
	case parts:
	}
	body = make([]byte, size)
	if size > 0 {
		body[0] = family
	}
	return kind, body
}

// buffers are for one read each: the kernel's dumps come in pieces of up to 32 KiB. They are shared, because most
// nodes are silent most of the time.
var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// errEmpty means that no message waits.
var errEmpty = errors.New("no message")

// receive hands the kernel's messages to f, which must not keep them, and says whether they are events or answers.
// (Port and sequence number do not show it: an event has those of the request that caused it, perhaps from another
// namespace, where the same port is another socket.) If there are none it waits for them until the deadline
// (os.ErrDeadlineExceeded), or not (errEmpty).
func (s *socket) receive(f func(b []byte, events bool) error, wait bool) error {
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		failed = nil
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		b := *buffer
		n, _, flags, from, err := unix.Recvmsg(int(fd), b, nil, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			failed = errEmpty
			return !wait
		case errors.Is(err, unix.ENOBUFS):
			failed = errOverrun
		case err != nil:
			failed = err
		case !rtnl.FromKernel(from): // before anything else: it may be of any length, and say anything
			failed = errForeign
		case flags&unix.MSG_TRUNC != 0:
			failed = fmt.Errorf("%w: too long", rtnl.ErrMalformed)
		default:
			failed = f(b[:n], from.(*unix.SockaddrNetlink).Groups != 0)
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

func (s *socket) wakeAt(t time.Time) error { return s.file.SetReadDeadline(t) }
