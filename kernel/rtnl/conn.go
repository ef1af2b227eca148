// Package rtnl is the one place for netlink: sockets, requests with their answers, and attributes.
//
// Requests are encoded here, and answers are walked over without a copy: the decoders of vishvananda/netlink cost
// eight times as much, which counts where 500 routers have 3,000 routes each. The mirror of routing tables has a
// socket of its own, for subscriptions with their overruns; its messages and attributes are those of this package.
package rtnl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// ErrInterrupted means that what was listed has changed meanwhile (NLM_F_DUMP_INTR): the list may lack something.
var ErrInterrupted = errors.New("changed while it was read")

// ErrAbsent means that the kernel has no such netlink protocol.
var ErrAbsent = errors.New("not part of this kernel")

// Conn is a netlink socket. It belongs for good to the namespace in which it was opened, and may be used anywhere;
// requests of several goroutines take turns.
type Conn struct {
	mu  sync.Mutex // guards what follows
	fd  int
	seq uint32
	out []byte
}

// bufferSize is more than the kernel sends at once: its dumps come in pieces of up to 32 KiB.
const bufferSize = 64 << 10

// buffers are for one exchange each.
var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// Open opens a socket of a protocol (NETLINK_ROUTE, ...) in the namespace of the thread. It fails with ErrAbsent.
func Open(protocol int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, ErrAbsent
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := prepare(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return &Conn{fd: fd}, nil
}

// OpenIn opens a socket in a namespace. It fails with ErrAbsent.
func OpenIn(ns *os.File, protocol int) (c *Conn, err error) {
	err = netns.In(ns, func() (err error) {
		c, err = Open(protocol)
		return err
	})
	return c, err
}

// Listen subscribes to groups of notifications of a protocol, in a namespace. A read of the file ends when it is
// closed, and fails with ENOBUFS when notifications were lost.
func Listen(ns *os.File, protocol int, groups ...int) (*os.File, error) {
	c, err := OpenIn(ns, protocol)
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.Join(groups...), unix.SetNonblock(c.fd, true))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return os.NewFile(uintptr(c.fd), "netlink"), nil
}

func prepare(fd int) error {
	// The kernel answers at once. Should it not, an error is better than a goroutine that waits forever.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1) // errors with a text, from Linux 4.12
	// errors without the request, from Linux 4.3
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	// It gets a port, to which only the kernel can send.
	return unix.Connect(fd, Kernel())
}

// Kernel is the address of the kernel.
func Kernel() unix.Sockaddr { return &unix.SockaddrNetlink{Family: unix.AF_NETLINK} }

// FromKernel reports whether the kernel sent a datagram. Root of a namespace can send to groups, too.
func FromKernel(sender unix.Sockaddr) bool {
	a, ok := sender.(*unix.SockaddrNetlink)
	return ok && a.Pid == 0
}

// FD is the socket's file descriptor.
func (c *Conn) FD() int { return c.fd }

// SetReceiveBuffer is the function of this name for the socket.
func (c *Conn) SetReceiveBuffer(bytes int) error { return SetReceiveBuffer(c.fd, bytes) }

// SetReceiveBuffer sets how many bytes of answers and notifications the kernel holds for a socket. Without
// CAP_NET_ADMIN in the machine's own user namespace, they are at most what net.core.rmem_max says.
func SetReceiveBuffer(fd, bytes int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	}
	return err
}

// Join subscribes to groups of notifications.
func (c *Conn) Join(groups ...int) error {
	for _, g := range groups {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			return fmt.Errorf("subscribe to netlink group %d: %w", g, err)
		}
	}
	return nil
}

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Do sends a request that changes something and waits for the kernel's result.
func (c *Conn) Do(kind, flags uint16, header []byte, attrs ...Attr) error {
	return c.Ask(Request(kind, flags|unix.NLM_F_ACK, header, attrs...), func(Message) error { return nil })
}

// dumpTries bounds how often a list that changed while it was read is read again.
const dumpTries = 5

// Dump lists objects: the messages of the kind that answers the request. Lists that change while they are read are read
// again; with ErrInterrupted, the last one is returned.
func (c *Conn) Dump(get, answer uint16, header []byte, attrs ...Attr) (all [][]byte, err error) {
	request := Request(get, unix.NLM_F_DUMP, header, attrs...)
	for range dumpTries {
		all = nil
		err = c.Ask(request, func(m Message) error {
			if m.Kind == answer {
				all = append(all, slices.Clone(m.Data))
			}
			return nil
		})
		if !errors.Is(err, ErrInterrupted) {
			return all, err
		}
	}
	return all, err
}

// Get asks for one object.
func (c *Conn) Get(kind uint16, header []byte, attrs ...Attr) (data []byte, err error) {
	err = c.Ask(Request(kind, 0, header, attrs...), func(m Message) error {
		data = slices.Clone(m.Data)
		return nil
	})
	return data, err
}

// Ask sends an encoded request and hands each message of the answer to f, up to the first error; a message is valid
// only until f returns. A request with NLM_F_DUMP lists, one with NLM_F_ACK has a result, any other one has a single
// answer.
func (c *Conn) Ask(request []byte, f func(Message) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.out = append(c.out[:0], request...)
	SetSequence(c.out, c.seq)
	if err := unix.Sendto(c.fd, c.out, 0, Kernel()); err != nil {
		return fmt.Errorf("send to the kernel: %w", err)
	}
	e := exchange{seq: c.seq, f: f, acknowledged: native.Uint16(request[6:])&unix.NLM_F_ACK != 0}
	return c.receive(e.datagram)
}

// receive hands over datagrams of the kernel until f has seen the last one.
func (c *Conn) receive(f func(datagram []byte) (end bool, err error)) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, from, err := unix.Recvfrom(c.fd, *buffer, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the kernel's answer: %w", err)
		}
		if !FromKernel(from) {
			continue
		}
		if n > len(*buffer) {
			return fmt.Errorf("read the kernel's answer: %d bytes are more than expected", n)
		}
		if end, err := f((*buffer)[:n]); end {
			return err
		}
	}
}

// exchange is the answer to one request. It is read to the end, also after an error: else the rest would be taken for
// the next answer.
type exchange struct {
	seq          uint32
	f            func(Message) error
	acknowledged bool // the answer ends with a result
	failed       error
}

// datagram reads one datagram of the answer, and reports whether it was the last.
func (e *exchange) datagram(b []byte) (end bool, err error) {
	for len(b) > 0 {
		m, rest, err := NextMessage(b)
		if err != nil {
			return true, fmt.Errorf("read the kernel's answer: %w", err)
		}
		b = rest
		if m.Seq == e.seq && e.message(m) {
			return true, e.failed
		}
	}
	return false, nil
}

// message reads one message of the answer, and reports whether it was the last.
func (e *exchange) message(m Message) (end bool) {
	if m.Flags&unix.NLM_F_DUMP_INTR != 0 {
		e.fail(ErrInterrupted)
	}
	switch m.Kind {
	case unix.NLMSG_NOOP:
		return false
	case unix.NLMSG_DONE, unix.NLMSG_ERROR:
		if errno := m.Errno(); errno != 0 {
			e.failed = m.failure(errno)
		}
		return true
	}
	if e.failed == nil || errors.Is(e.failed, ErrInterrupted) {
		if err := e.f(m); err != nil {
			e.failed = err
		}
	}
	return m.Flags&unix.NLM_F_MULTI == 0 && !e.acknowledged
}

func (e *exchange) fail(err error) {
	if e.failed == nil {
		e.failed = err
	}
}

// failure is an error number with the text that the kernel gives to it (NLMSGERR_ATTR_MSG), if there is one.
func (m Message) failure(errno unix.Errno) error {
	const text = 1
	offset := 4 // of NLMSG_DONE
	if m.Kind == unix.NLMSG_ERROR {
		offset += unix.NLMSG_HDRLEN
		if m.Flags&unix.NLM_F_CAPPED == 0 { // the whole request comes back
			if len(m.Data) < offset {
				return errno
			}
			offset = 4 + Align(int(native.Uint32(m.Data[4:])))
		}
	}
	if m.Flags&unix.NLM_F_ACK_TLVS == 0 || len(m.Data) < offset {
		return errno
	}
	for a := Attributes(m.Data[offset:]); a.Next(); {
		if a.Kind == text {
			return fmt.Errorf("%w: %s", errno, a.Text())
		}
	}
	return errno
}
