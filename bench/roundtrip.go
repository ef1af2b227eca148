package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's own ping counts microseconds, which is too coarse for a link of five. These are blocking sockets on a locked
// thread: Go's poller would cost more than the link.

const (
	warmUp     = 2_000
	roundTrips = 20_000
	echoPort   = 7007
)

// roundTrip measures round trips one after the other and gives the median. kind is icmp, answered by the other's kernel, or
// udp, answered by a process there (echo).
func roundTrip(kind string, to netip.Addr) (time.Duration, error) {
	runtime.LockOSThread()
	socketType, protocol := unix.SOCK_RAW, unix.IPPROTO_ICMP
	if kind == "udp" {
		socketType, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	fd, err := unix.Socket(unix.AF_INET, socketType, protocol)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return 0, fmt.Errorf("set a timeout: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: echoPort, Addr: to.As4()}); err != nil {
		return 0, fmt.Errorf("connect to %s: %w", to, err)
	}
	packet := echoRequest()
	took := make([]time.Duration, 0, roundTrips)
	for i := range warmUp + roundTrips {
		started := time.Now()
		if _, err := unix.Write(fd, packet); err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
		if err := receive(fd); err != nil {
			return 0, err
		}
		if i >= warmUp {
			took = append(took, time.Since(started))
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func receive(fd int) error {
	var buf [256]byte
	_, err := unix.Read(fd, buf[:])
	switch {
	case errors.Is(err, unix.EINTR):
		return receive(fd)
	case err != nil:
		return fmt.Errorf("receive: %w", err)
	}
	return nil
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

// echo answers every datagram until the process is killed. It says when it listens.
func echo() error {
	runtime.LockOSThread()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: echoPort}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	fmt.Println("ready")
	var buf [256]byte
	for {
		n, from, err := unix.Recvfrom(fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := unix.Sendto(fd, buf[:n], 0, from); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}
