package path

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of ethtool (linux/ethtool.h) that switch an offload.
const (
	offloadGRO      = 0x2c // ETHTOOL_SGRO
	offloadChecksum = 0x17 // ETHTOOL_STXCSUM; TSO goes with it
)

// setOffload switches an offload of a device on or off.
func setOffload(ns *os.File, device string, command uint32, on bool) error {
	err := in(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		value := struct{ command, data uint32 }{command: command}
		if on {
			value.data = 1
		}
		request := struct { // struct ifreq
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
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
