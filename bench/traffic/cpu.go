package traffic

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnCPU calls f on a thread that stays on one core.
func OnCPU(cpu int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return fmt.Errorf("ask for the cores of a thread: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("stay on core %d: %w", cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &was) }()
	return f()
}
