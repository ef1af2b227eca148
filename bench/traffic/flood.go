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
	return NewFloodOf(ns, netip.AddrPortFrom(to, Port), make([]byte, size-headersSize))
}

// NewFloodOf is NewFlood, of datagrams with such data.
func NewFloodOf(ns *os.File, to netip.AddrPort, data []byte) (*Flood, error) {
	fd, err := connected(ns, to)
	if err != nil {
		return nil, fmt.Errorf("make a flood: %w", err)
	}
	f := &Flood{fd: fd}
	const batch = 64
	vector := &unix.Iovec{Base: &data[0]}
	vector.SetLen(len(data))
	f.messages = make([]message, batch)
	for i := range f.messages {
		f.messages[i].header.Iov = vector
		f.messages[i].header.SetIovlen(1)
	}
	return f, nil
}

// connected opens a socket for datagrams in a namespace.
func connected(ns *os.File, to netip.AddrPort) (fd int, err error) {
	err = netns.In(ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// PaceAll sends for so long by all floods in turn, so many datagrams a second together. What was late by more than a
// millisecond is not made up for.
func PaceAll(all []*Flood, d time.Duration, rate float64) error {
	const slack = time.Millisecond
	if rate == 0 {
		time.Sleep(d)
		return nil
	}
	apart := time.Duration(float64(time.Second) / rate)
	due := time.Duration(0)
	for i, started := 0, time.Now(); ; i++ {
		now := time.Since(started)
		for ; now < due; now = time.Since(started) { // a timer would be too coarse
		}
		if now >= d {
			return nil
		}
		due = max(due, now-slack) + apart
		if _, err := all[i%len(all)].send(1); err != nil {
			return err
		}
	}
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
