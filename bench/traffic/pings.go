package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Pings measures round trips of datagrams of a size, which a sink sends back (NewEchoSink, NewHostEchoSink).
type Pings struct {
	fd   int
	data []byte
}

// answerWithin is how long a ping waits.
const answerWithin = 200 * time.Millisecond

// NewPings opens a socket in a namespace. size is that of a datagram's data.
func NewPings(ns *os.File, to netip.Addr, size int) (*Pings, error) {
	p := &Pings{fd: -1, data: make([]byte, size)}
	err := netns.In(ns, func() (err error) {
		p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil {
		timeout := unix.NsecToTimeval(answerWithin.Nanoseconds())
		err = unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	}
	if err == nil {
		err = unix.Connect(p.fd, &unix.SockaddrInet4{Port: EchoPort, Addr: to.As4()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pings: %w", err), p.Close())
	}
	return p, nil
}

// Once pings once. answered is false where no answer came in time.
func (p *Pings) Once() (took time.Duration, answered bool, err error) {
	begun := time.Now()
	if _, err := unix.Write(p.fd, p.data); err != nil {
		return 0, false, fmt.Errorf("ping: %w", err)
	}
	for {
		n, err := unix.Read(p.fd, p.data)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, false, nil
		case err != nil:
			return 0, false, fmt.Errorf("ping: %w", err)
		case n != len(p.data):
			return 0, false, fmt.Errorf("ping: an answer has %d bytes, not %d", n, len(p.data))
		}
		return time.Since(begun), true, nil
	}
}

// Close closes the socket.
func (p *Pings) Close() error {
	if p.fd < 0 {
		return nil
	}
	return unix.Close(p.fd)
}

// OneWay measures how long datagrams take from one namespace to another. One process sends and receives.
type OneWay struct {
	from, to int
	data     []byte
	number   uint64 // of the last datagram, in the end of its data
	received []byte
}

// NewOneWay opens sockets: datagrams with such data, of which the last eight bytes are a number, go to an address, and
// come to a port of the other namespace with that end.
func NewOneWay(from, to *os.File, address netip.AddrPort, port int, data []byte) (p *OneWay, err error) {
	p = &OneWay{to: -1, data: data, received: make([]byte, 1<<16)}
	if p.from, err = connected(from, address); err != nil {
		return nil, fmt.Errorf("make pings: %w", err)
	}
	err = netns.In(to, func() (err error) {
		p.to, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil {
		timeout := unix.NsecToTimeval(answerWithin.Nanoseconds())
		err = unix.SetsockoptTimeval(p.to, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	}
	if err == nil {
		err = unix.Bind(p.to, &unix.SockaddrInet4{Port: port})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pings: %w", err), p.Close())
	}
	return p, nil
}

// Once sends one. arrived is false where it did not come in time.
func (p *OneWay) Once() (took time.Duration, arrived bool, err error) {
	p.number++
	end := len(p.data) - 8
	binary.BigEndian.PutUint64(p.data[end:], p.number)
	begun := time.Now()
	if _, err := unix.Write(p.from, p.data); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		return 0, false, fmt.Errorf("ping: %w", err)
	}
	for {
		n, err := unix.Read(p.to, p.received)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, false, nil
		case err != nil:
			return 0, false, fmt.Errorf("ping: %w", err)
		case n >= 8 && bytes.Equal(p.received[n-8:n], p.data[end:]): // else one that came late
			return time.Since(begun), true, nil
		}
	}
}

// Close closes the sockets.
func (p *OneWay) Close() error {
	err := unix.Close(p.from)
	if p.to >= 0 {
		err = errors.Join(err, unix.Close(p.to))
	}
	return err
}

// First lets the calling thread run before all others of its core that are not in a hurry, and returns what undoes it.
// A measuring process that waits for its core would be taken for a slow network.
func First() (undo func() error, err error) {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	normal := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if err = unix.SchedSetAttr(0, &attr, 0); err == nil {
		return func() error { return unix.SchedSetAttr(0, &normal, 0) }, nil
	}
	// In a cpu cgroup of version 1 without a share of real time.
	normal.Nice = 0
	attr = unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: -20}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return nil, fmt.Errorf("raise a thread's priority: %w", err)
	}
	return func() error { return unix.SchedSetAttr(0, &normal, 0) }, nil
}
