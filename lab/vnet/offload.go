package vnet

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Offload is a command of ethtool (linux/ethtool.h) that switches an offload.
type Offload uint32

// The offloads.
const (
	Checksum Offload = 0x17 // ETHTOOL_STXCSUM; TSO goes with it
	GRO      Offload = 0x2c // ETHTOOL_SGRO
)

// SetOffload switches an offload of a device on or off.
func SetOffload(ns *os.File, device string, which Offload, on bool) error {
	err := netns.In(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		value := struct{ command, data uint32 }{command: uint32(which)} // struct ethtool_value
		if on {
			value.data = 1
		}
		request := struct { // struct ifreq
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request)))
		runtime.KeepAlive(&value)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("switch an offload of %s: %w", device, err)
	}
	return nil
}
