package eligible

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socket is a netlink socket of the namespace in which it was opened, used with plain system calls: a question to the kernel is
// answered while it is asked, so nothing ever waits, and a poll of 500 namespaces has no time for more.
type socket int

// errInterrupted: what was listed changed in between. Look again.
var errInterrupted = errors.New("changed while it was read")

// errAbsent: this kernel has no such part.
var errAbsent = errors.New("not part of this kernel")

// sequence is that of all requests: each socket has one at a time.
const sequence = 1

// kernel is where it listens.
func kernel() unix.Sockaddr { return &unix.SockaddrNetlink{Family: unix.AF_NETLINK} }

// fromKernel: root of the node may send to groups, too.
func fromKernel(sender unix.Sockaddr) bool {
	a, ok := sender.(*unix.SockaddrNetlink)
	return ok && a.Pid == 0
}

func open(protocol int, groups ...int) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return -1, errAbsent
	}
	if err != nil {
		return -1, fmt.Errorf("open netlink socket: %w", err)
	}
	// The kernel answers at once; should one not, an error is better than a watcher that stands still.
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2})
	if err == nil { // gives it a port, without which it is sent no announcements, and lets nobody but the kernel send to that
		err = unix.Connect(fd, kernel())
	}
	if err == nil && len(groups) > 0 { // one announcement says as much as a thousand
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10)
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("set up netlink socket: %w", err)
	}
	return socket(fd), nil
}

func (s socket) close() {
	if s >= 0 {
		_ = unix.Close(int(s))
	}
}

// request makes a message for ask. A message of NLM_F_DUMP lists, one without gets a single answer.
func request(kind int, flags netlink.HeaderFlags, data []byte) []byte {
	m := netlink.Message{
		Header: netlink.Header{
			Length:   uint32(unix.NLMSG_HDRLEN + (len(data)+3)&^3),
			Type:     netlink.HeaderType(kind),
			Flags:    netlink.Request | flags,
			Sequence: sequence,
		},
		Data: append(slices.Clone(data), 0, 0, 0)[:(len(data)+3)&^3],
	}
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // its length is aligned
	}
	return b
}

// ask sends a request and gives the data of each message of the answer to f; it is valid only until f returns. buf must hold
// what the kernel sends at once: 32 KiB.
func (s socket) ask(request, buf []byte, f func(data []byte) error) error {
	if err := unix.Sendto(int(s), request, 0, kernel()); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}
	var failed error
	for {
		n, from, err := unix.Recvfrom(int(s), buf, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the kernel's answer: %w", err)
		}
		if !fromKernel(from) {
			continue
		}
		if n > len(buf) {
			return fmt.Errorf("read the kernel's answer: %d bytes are more than expected", n)
		}
		// To the end, also after an error: else the rest would be taken for the next answer.
		end, err := answer(buf[:n], f)
		failed = errors.Join(failed, err)
		if end {
			return failed
		}
	}
}

// answer reads one datagram of an answer, and reports whether it was the last.
func answer(datagram []byte, f func(data []byte) error) (end bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return true, fmt.Errorf("read the kernel's answer: %w", err)
	}
	for _, m := range messages {
		if m.Header.Seq != sequence {
			continue
		}
		if m.Header.Flags&unix.NLM_F_DUMP_INTR != 0 {
			err = errInterrupted
		}
		switch m.Header.Type {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			if errno := status(m.Data); errno != 0 {
				err = errno
			}
			return true, err
		default:
			if err == nil {
				err = f(m.Data)
			}
			if m.Header.Flags&unix.NLM_F_MULTI == 0 {
				return true, err
			}
		}
	}
	return false, err
}

// status is the error with which an answer ends.
func status(data []byte) unix.Errno {
	if len(data) < 4 {
		return unix.EPROTO
	}
	if code := int32(byteOrder.Uint32(data)); code != math.MinInt32 && code < 0 {
		return unix.Errno(-code)
	}
	return 0
}

// attributes calls f for each attribute behind a header of so many bytes.
func attributes(data []byte, header int, f func(*netlink.AttributeDecoder)) error {
	if len(data) < header {
		return fmt.Errorf("read netlink message: %w", unix.EBADMSG)
	}
	d, err := netlink.NewAttributeDecoder(data[header:])
	if err != nil {
		return fmt.Errorf("read netlink attributes: %w", err)
	}
	for d.Next() {
		f(d)
	}
	if d.Err() != nil {
		return fmt.Errorf("read netlink attributes: %w", d.Err())
	}
	return nil
}
