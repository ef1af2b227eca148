package vnet

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of ethtool, from linux/ethtool.h.
const (
	ethtoolChecksum = 0x17 // ETHTOOL_STXCSUM; TSO goes with it
	ethtoolGRO      = 0x2c // ETHTOOL_SGRO
)

// offloads make an interface what is at the other end of a wire: it sends complete frames, and takes those that XDP redirects to it, which
// a veth does only with GRO or a program.
func offloads(n *Node, name string) error {
	err := n.Do(func() error {
		if err := ethtool(name, ethtoolChecksum, 0); err != nil {
			return err
		}
		return ethtool(name, ethtoolGRO, 1)
	})
	if err != nil {
		return fmt.Errorf("switch offloads of %s of %s: %w", name, n.Name, err)
	}
	return nil
}

// ethtool sets one value of a device in the thread's namespace.
func ethtool(name string, command, data uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	value := struct{ command, data uint32 }{command, data} // struct ethtool_value
	request := struct {                                    // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return errno
	}
	return nil
}
