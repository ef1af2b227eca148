package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Flood sends UDP datagrams from a socket as fast as its core can.
type Flood struct {
	fd       int
	messages []message
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	sent   uint32
	_      [4]byte
}

// headersSize is what comes before a datagram's data: Ethernet, IPv4, UDP.
const headersSize = 14 + 20 + 8

// NewFlood makes one in a namespace. size is that of a frame.
func NewFlood(ns *os.File, to netip.Addr, size int) (*Flood, error) {
	f := &Flood{fd: -1}
	err := netns.In(ns, func() (err error) {
		f.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil {
		err = unix.Connect(f.fd, &unix.SockaddrInet4{Port: Port, Addr: to.As4()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a flood: %w", err), f.Close())
	}
	const batch = 64
	data := make([]byte, size-headersSize)
	vector := &unix.Iovec{Base: &data[0]}
	vector.SetLen(len(data))
	f.messages = make([]message, batch)
	for i := range f.messages {
		f.messages[i].header.Iov = vector
		f.messages[i].header.SetIovlen(1)
	}
	return f, nil
}

// Send sends for so long, and says how many datagrams it sent and what that took.
func (f *Flood) Send(d time.Duration) (sent int, took time.Duration, err error) {
	started := time.Now()
	for took < d {
		n, err := f.send(len(f.messages))
		if err != nil {
			return sent, took, err
		}
		sent += n
		took = time.Since(started)
	}
	return sent, took, nil
}

// Pace sends for so long, so many datagrams a second, one after the other.
func (f *Flood) Pace(d time.Duration, rate float64) (sent int, err error) {
	total := max(1, int(rate*d.Seconds()))
	for started := time.Now(); sent < total; {
		if float64(sent) > rate*time.Since(started).Seconds() {
			continue // a timer would be too coarse
		}
		n, err := f.send(1)
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// send sends up to n datagrams.
func (f *Flood) send(n int) (sent int, err error) {
	done, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.messages[0])),
		uintptr(n), 0, 0, 0)
	switch errno {
	case 0:
		return int(done), nil
	case unix.EINTR, unix.ENOBUFS, unix.ECONNREFUSED:
		// The latter two: a queue on the way is full; an ICMP answer to an earlier datagram.
		return 0, nil
	default:
		return 0, fmt.Errorf("send: %w", errno)
	}
}

// Close closes the socket.
func (f *Flood) Close() error {
	if f.fd < 0 {
		return nil
	}
	return unix.Close(f.fd)
}
