package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// The kernel's own ping counts microseconds, which is too coarse for a link of five. These are blocking sockets on a
// locked thread: Go's poller would cost more than the link.

// Pinger measures round trips, one after the other, of packets with 64 bytes of ICMP or UDP data.
type Pinger struct {
	fd     int
	packet []byte
	answer []byte // the last; with its IPv4 header if it is one of ICMP
}

// EchoPort is the UDP port of what is sent back.
const EchoPort = Port + 1

// Kinds of pingers.
const (
	ICMP = "icmp" // answered by the other's kernel
	UDP  = "udp"  // answered by a program there: Echo
)

// NewPinger makes one in a namespace.
func NewPinger(ns *os.File, kind string, to netip.Addr) (*Pinger, error) {
	socketType, protocol := unix.SOCK_RAW, unix.IPPROTO_ICMP
	if kind == UDP {
		socketType, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	p := &Pinger{fd: -1, packet: echoRequest(), answer: make([]byte, 256)}
	err := netns.In(ns, func() (err error) {
		p.fd, err = unix.Socket(unix.AF_INET, socketType|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err == nil {
		err = unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2})
	}
	if err == nil {
		err = unix.Connect(p.fd, &unix.SockaddrInet4{Port: EchoPort, Addr: to.As4()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pinger: %w", err), p.Close())
	}
	return p, nil
}

// losses is how many requests in all may stay without an answer (for two seconds each) while a path is measured: a
// neighbour that is not resolved yet, or a machine that stood still, is no fault of the path.
const losses = 2

// Ping measures for so long and gives the median.
func (p *Pinger) Ping(d time.Duration) (time.Duration, error) {
	var took []time.Duration
	lost := 0
	for begun := time.Now(); time.Since(begun) < d || len(took) == 0; {
		started := time.Now()
		if _, err := unix.Write(p.fd, p.packet); err != nil {
			return 0, fmt.Errorf("ping: %w", err)
		}
		err := p.receive()
		if errors.Is(err, unix.EAGAIN) && lost < losses {
			lost++
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("ping, %d without an answer before it: %w", lost, err)
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// Close closes the socket.
func (p *Pinger) Close() error {
	if p.fd < 0 {
		return nil
	}
	return unix.Close(p.fd)
}

func (p *Pinger) receive() error {
	_, err := unix.Read(p.fd, p.answer)
	if errors.Is(err, unix.EINTR) {
		return p.receive()
	}
	return err
}

// TTL is that of the last answer of a pinger of kind ICMP.
func (p *Pinger) TTL() int { return int(p.answer[8]) }

// RoundTrip pings for so long, on one core, and gives the median and the TTL of the last answer, which only ICMP knows.
func RoundTrip(ns *os.File, kind string, to netip.Addr, core int, d time.Duration) (
	median time.Duration, ttl int, err error,
) {
	p, err := NewPinger(ns, kind, to)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	err = OnCPU(core, func() error {
		median, err = p.Ping(d)
		return err
	})
	return median, p.TTL(), err
}

// echoRequest is an ICMP echo request with 56 bytes of data (RFC 792); as data of UDP it serves as well.
func echoRequest() []byte {
	p := make([]byte, 64)
	p[0] = 8
	binary.BigEndian.PutUint16(p[4:], 0x7007)
	var sum uint32
	for i := 0; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[2:], ^uint16(sum+sum>>16))
	return p
}

// Echo answers every datagram.
type Echo struct {
	fd      int
	stop    atomic.Bool
	stopped chan error
}

// StartEcho starts one in a namespace, on a core of the machine.
func StartEcho(ns *os.File, cpu int) (*Echo, error) {
	e := &Echo{fd: -1, stopped: make(chan error, 1)}
	err := netns.In(ns, func() (err error) {
		e.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil { // so often it looks whether it shall stop
		err = unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	}
	if err == nil {
		err = unix.Bind(e.fd, &unix.SockaddrInet4{Port: EchoPort})
	}
	if err != nil {
		if e.fd >= 0 {
			err = errors.Join(err, unix.Close(e.fd))
		}
		return nil, fmt.Errorf("start echo: %w", err)
	}
	go func() { e.stopped <- OnCPU(cpu, e.answer) }()
	return e, nil
}

func (e *Echo) answer() error {
	var buf [256]byte
	for !e.stop.Load() {
		n, from, err := unix.Recvfrom(e.fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err == nil {
			err = unix.Sendto(e.fd, buf[:n], 0, from)
		}
		if err != nil {
			return fmt.Errorf("echo: %w", err)
		}
	}
	return nil
}

// Stop ends it.
func (e *Echo) Stop() error {
	e.stop.Store(true)
	return errors.Join(<-e.stopped, unix.Close(e.fd))
}
