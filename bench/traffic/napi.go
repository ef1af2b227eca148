package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoThreads says that no thread of the kernel is seen that could be kept on a core: so it is in a PID namespace that
// is not the machine's.
var ErrNoThreads = errors.New("there are none in this PID namespace")

// A network card's interrupts say on which core frames are received. A veth device has none: frames are received on
// the core of their sender, unless NAPI has a thread, or the kernel steers them to another core (RPS).

// Threaded gives the NAPI of a device a thread on one core, where it polls the device, with its programs of XDP. The
// device must have GRO or a program of XDP. It holds until the last of these is switched off; device names must be
// unique on the machine. ErrNoThreads: the device has its thread, on whatever core.
func Threaded(ctx context.Context, ns *os.File, device string, cpu int) error {
	if err := setDevice(ctx, ns, device, "threaded", "1"); err != nil {
		return err
	}
	pids, err := napiThreads(device)
	if err != nil {
		return fmt.Errorf("find the threads of %s: %w", device, err)
	}
	if len(pids) == 0 {
		return fmt.Errorf("find the threads of %s: %w", device, ErrNoThreads)
	}
	var one unix.CPUSet
	one.Set(cpu)
	for _, pid := range pids {
		if err := unix.SchedSetaffinity(pid, &one); err != nil {
			return fmt.Errorf("keep the NAPI thread of %s on core %d: %w", device, cpu, err)
		}
	}
	return nil
}

// Unthreaded undoes Threaded.
func Unthreaded(ctx context.Context, ns *os.File, device string) error {
	return setDevice(ctx, ns, device, "threaded", "0")
}

// Steer lets a device's frames enter the stack on one core (RPS), as if its interrupts came there; -1: on the core
// where they are received.
func Steer(ctx context.Context, ns *os.File, device string, cpu int) error {
	mask := "0"
	if cpu >= 0 {
		mask = strconv.FormatUint(1<<cpu, 16)
	}
	return setDevice(ctx, ns, device, "queues/rx-0/rps_cpus", mask)
}

// setDevice writes a file of a device. A namespace's devices are in a sysfs that is mounted in it.
func setDevice(ctx context.Context, ns *os.File, device, file, value string) error {
	const script = `mount -t sysfs sysfs /sys && echo "$1" >"$0"`
	cmd := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), ns.Fd()), "--",
		"unshare", "--mount", "sh", "-c", script, filepath.Join("/sys/class/net", device, file), value)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set %s of %s to %s: %w: %s", file, device, value, err, bytes.TrimSpace(out))
	}
	return nil
}

// napiThreads finds the kernel's threads of a device by their names: napi/DEVICE-NUMBER.
func napiThreads(device string) (pids []int, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if !isNAPIThread(strings.TrimSpace(string(text)), device) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, err
}

func isNAPIThread(comm, device string) bool {
	number, ok := strings.CutPrefix(comm, "napi/"+device+"-")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}
