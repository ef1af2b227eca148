// Package tap makes tap devices: Ethernet interfaces whose cable ends in a file descriptor (tuntap.rst in the kernel's
// documentation). One read or write is one frame.
package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const device = "/dev/net/tun"

// ErrBusy means that a file is attached to the device already: it has one queue.
var ErrBusy = errors.New("another process has it")

// Open attaches a file to a device of the thread's network namespace, which is made with this index unless it is there.
// The device stays when the file is closed. Reads and writes block.
func Open(name string, index int) (f *os.File, err error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("open %s: %w (modprobe tun)", device, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	f = os.NewFile(uintptr(fd), name)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, index); err != nil {
		return nil, fmt.Errorf("choose the index of tap device %s: %w", name, err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("make tap device %s: %w", name, err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("attach to tap device %s: %w", name, ErrBusy)
	}
	if err != nil {
		return nil, fmt.Errorf("make tap device %s: %w", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return nil, fmt.Errorf("keep tap device %s: %w", name, err)
	}
	return f, nil
}
