package traffic

import (
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
