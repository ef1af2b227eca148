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
	maxProbes    = 8                      // routers on the way, each with a smaller MTU than the one before
	errorTimeout = 500 * time.Millisecond // how long an ICMP error may take
	discard      = 9                      // port of RFC 863; a host without this service sends an ICMP error
)

// PathMTU is how many bytes an IP packet may have from an address of the machine to another machine, by its own routes
// and by what routers on the way say (RFC 1191, RFC 8201). They answer a packet that is too long, so one is sent that
// is as long as the kernel takes the path's MTU to be. Packets of tunnels do not serve: there is no socket for the
// answers. The thread is in the machine's namespace.
func PathMTU(local, peer netip.Addr) (mtu int, err error) {
	again := true
	for i := 0; again && i < maxProbes; i++ {
		if mtu, again, err = probePath(local, peer); err != nil {
			return 0, fmt.Errorf("ask what passes to %s: %w", peer, err)
		}
	}
	return mtu, nil
}

// probePath sends one packet as long as the path's MTU. again says that the kernel has learnt another MTU from it.
func probePath(local, peer netip.Addr) (mtu int, again bool, err error) {
	family, level, headers := unix.AF_INET, unix.IPPROTO_IP, 20+8
	discover, do, known := unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU
	if peer.Is6() {
		family, level, headers = unix.AF_INET6, unix.IPPROTO_IPV6, 40+8
		discover, do, known = unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU
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
		err = awaitError(fd)
	}
	if err != nil && !errors.Is(err, unix.EMSGSIZE) {
		return mtu, false, nil // it arrived, or was lost: no router says that it is too long
	}
	return mtu, err != nil, nil
}

// awaitError gives the ICMP error that answers a packet that a socket has sent: EMSGSIZE if it was too long,
// ECONNREFUSED if it arrived and there is no discard service.
func awaitError(fd int) error {
	deadline := time.Now().Add(errorTimeout)
	for {
		left := max(int(time.Until(deadline).Milliseconds()), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, left) // POLLERR is always polled for
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
