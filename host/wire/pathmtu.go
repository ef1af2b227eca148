package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxNarrowings = 8                      // routers that each take less than the one before
	objectWithin  = 500 * time.Millisecond // after which nobody on the way is taken to object
	discard       = 9                      // RFC 863: whoever has no such service says so, and has got the packet
)

// PathMTU is how long an IP packet may be from an address of the machine to another machine, by its own routes and by what routers on the way say (RFC 1191,
// RFC 8201). They say it to who sends them a packet that is too long, so one is sent that is as long as the kernel thinks that it may be. What tunnels
// send does not do: there is no socket in the kernel that the answer would be for. The thread is in the machine's namespace.
func PathMTU(local, peer netip.Addr) (mtu int, err error) {
	again := true
	for i := 0; again && i < maxNarrowings; i++ {
		if mtu, again, err = probePath(local, peer); err != nil {
			return 0, fmt.Errorf("ask what passes to %s: %w", peer, err)
		}
	}
	return mtu, nil
}

// probePath sends one packet as long as the path's MTU. again says that this is another one by now.
func probePath(local, peer netip.Addr) (mtu int, again bool, err error) {
	family, level, discover, do, known, headers := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU, 20+8
	if peer.Is6() {
		family, level, discover, do, known, headers = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU, 40+8
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, false, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, level, discover, do); err != nil {
		return 0, false, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, socketAddress(local, 0)); err != nil {
		return 0, false, os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(fd, socketAddress(peer, discard)); err != nil {
		return 0, false, os.NewSyscallError("connect", err)
	}
	if mtu, err = unix.GetsockoptInt(fd, level, known); err != nil {
		return 0, false, os.NewSyscallError("getsockopt", err)
	}
	_, err = unix.Write(fd, make([]byte, min(max(mtu, headers), 0xffff)-headers))
	if err == nil {
		err = awaitObjection(fd)
	}
	if err != nil && !errors.Is(err, unix.EMSGSIZE) {
		return mtu, false, nil // it got there, or nowhere: nobody says that it is too long
	}
	return mtu, err != nil, nil
}

// awaitObjection is what is said of a packet that a socket has sent: EMSGSIZE, that it is too long; ECONNREFUSED, that it was too much all the same.
func awaitObjection(fd int) error {
	deadline := time.Now().Add(objectWithin)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, max(int(time.Until(deadline).Milliseconds()), 0)) // POLLERR is always asked for
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		said, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil || said == 0 {
			return err
		}
		return unix.Errno(said)
	}
}

func socketAddress(a netip.Addr, port int) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
}
