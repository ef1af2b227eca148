package unwalked

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/agent/unwalked/answer"
	"github.com/pergola-net/pergola/kernel/netns"
)

// sendByIP sends an answer by a raw socket in a router's namespace. from is the address of the router that the answer
// names: that of the interface by which the packet came. It is set, too, if the router has no route (isUnreachable).
//
// The socket is open for this one answer: one that stayed open would keep the namespace, and with it the links of a
// node that has ended, and it would be given all of ICMP that comes to the node.
func sendByIP(ns *os.File, index int, a *answer.Answer) (from netip.Addr, err error) {
	message, err := a.Message()
	if err != nil {
		return from, fmt.Errorf("write an answer: %w", err)
	}
	err = netns.In(ns, func() error {
		if from, err = addressOf(index, a.Is6()); err != nil {
			return err
		}
		return sendFrom(from, a.To, message)
	})
	return from, err
}

// isUnreachable reports whether a router's kernel has no route to the source.
func isUnreachable(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
}

// addressOf gives the primary address of an interface, as the kernel chooses it for errors
// (net.ipv4.icmp_errors_use_inbound_ifaddr): the first one that has more than its link for scope. Where the interface
// has none, it is the first one of the router.
func addressOf(index int, ipv6 bool) (netip.Addr, error) {
	here := &net.Interface{Index: index}
	own, err := here.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read addresses: %w", err)
	}
	if a, ok := firstOf(own, ipv6); ok {
		return a, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read addresses: %w", err)
	}
	if a, ok := firstOf(all, ipv6); ok {
		return a, nil
	}
	return netip.Addr{}, errors.New("the router has no address to answer from")
}

func firstOf(list []net.Addr, ipv6 bool) (netip.Addr, bool) {
	for _, one := range list {
		ip, ok := one.(*net.IPNet)
		if !ok {
			continue
		}
		a, _ := netip.AddrFromSlice(ip.IP)
		if a = a.Unmap(); a.Is6() == ipv6 && a.IsGlobalUnicast() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// sendFrom sends a message of ICMP from an address of the namespace of the calling thread. The kernel adds the IP
// header, and of IPv6 the checksum.
func sendFrom(from, to netip.Addr, message []byte) error {
	const control = 0xc0 // TOS: IPTOS_PREC_INTERNETCONTROL, as that of the kernel's own errors
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if to.Is6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !to.Is6() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, control); err != nil {
			return fmt.Errorf("set TOS: %w", err)
		}
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return fmt.Errorf("answer from %s: %w", from, err)
	}
	if err := unix.Sendto(fd, message, 0, sockaddr(to)); err != nil {
		return fmt.Errorf("answer %s: %w", to, err)
	}
	return nil
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}
