package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	return ThreadedAll(ctx, ns, map[string]int{device: cpu})
}

// ThreadedAll is Threaded for many devices of a namespace, each with its core.
func ThreadedAll(ctx context.Context, ns *os.File, cores map[string]int) error {
	devices := slices.Sorted(maps.Keys(cores))
	if err := setDevices(ctx, ns, devices, "threaded", "1"); err != nil {
		return err
	}
	threads, err := napiThreads()
	if err != nil {
		return fmt.Errorf("find the threads of NAPI: %w", err)
	}
	for _, device := range devices {
		if len(threads[device]) == 0 {
			return fmt.Errorf("find the threads of %s: %w", device, ErrNoThreads)
		}
		var one unix.CPUSet
		one.Set(cores[device])
		for _, pid := range threads[device] {
			if err := unix.SchedSetaffinity(pid, &one); err != nil {
				return fmt.Errorf("keep the NAPI thread of %s on core %d: %w", device, cores[device],
					err)
			}
		}
	}
	return nil
}

// Policy is how the kernel schedules a thread.
type Policy string

// Policies.
const (
	Ordinary Policy = "ordinary"
	FIFO     Policy = "FIFO"     // before all ordinary ones of its core
	Deadline Policy = "DEADLINE" // 950 us of each millisecond, before all others of its core
)

// ErrPolicy says that the kernel does not let a thread be scheduled so.
var ErrPolicy = errors.New("the kernel refuses it")

// attributes are those of a thread.
func (p Policy) attributes() unix.SchedAttr {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	switch p {
	case FIFO:
		a.Policy, a.Priority = unix.SCHED_FIFO, 1
	case Deadline:
		const period, part = uint64(time.Millisecond), 95 // %: what the kernel lets real-time threads have
		a.Policy, a.Runtime, a.Deadline, a.Period = unix.SCHED_DEADLINE, period*part/100, period, period
	case Ordinary:
	}
	return a
}

// Schedule says how the threads of a device are scheduled. It holds as long as the threads do. ErrPolicy: the kernel
// does not do so, as with a thread by DEADLINE that is kept on one core.
func Schedule(device string, p Policy) error {
	threads, err := napiThreads()
	if err != nil {
		return fmt.Errorf("find the threads of NAPI: %w", err)
	}
	if len(threads[device]) == 0 {
		return fmt.Errorf("find the threads of %s: %w", device, ErrNoThreads)
	}
	attr := p.attributes()
	for _, pid := range threads[device] {
		err := unix.SchedSetAttr(pid, &attr, 0)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) {
			err = errors.Join(ErrPolicy, err)
		}
		if err != nil {
			return fmt.Errorf("schedule the NAPI thread of %s by %s: %w", device, p, err)
		}
	}
	return nil
}

// Unthreaded undoes Threaded for devices of a namespace.
func Unthreaded(ctx context.Context, ns *os.File, devices ...string) error {
	return setDevices(ctx, ns, devices, "threaded", "0")
}

// Steer lets a device's frames enter the stack on one core (RPS), as if its interrupts came there; -1: on the core
// where they are received.
func Steer(ctx context.Context, ns *os.File, device string, cpu int) error {
	mask := "0"
	if cpu >= 0 {
		mask = strconv.FormatUint(1<<cpu, 16)
	}
	return setDevices(ctx, ns, []string{device}, "queues/rx-0/rps_cpus", mask)
}

// setDevices writes a file of each device. A namespace's devices are in a sysfs that is mounted in it.
func setDevices(ctx context.Context, ns *os.File, devices []string, file, value string) error {
	const script = `mount -t sysfs sysfs /sys && for d; do echo "$VALUE" >"/sys/class/net/$d/$FILE" || exit; done`
	args := []string{fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), ns.Fd()), "--", "unshare", "--mount", "sh",
		"-c",
		script, "sh"}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, devices...)...)
	cmd.Env = append(os.Environ(), "FILE="+file, "VALUE="+value)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set %s of %s to %s: %w: %s", file, strings.Join(devices, ", "), value, err,
			bytes.TrimSpace(out))
	}
	return nil
}

// napiThreads finds the kernel's threads of devices by their names: napi/DEVICE-NUMBER.
func napiThreads() (threads map[string][]int, err error) {
	threads = map[string][]int{}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		device, is := deviceOfThread(strings.TrimSpace(string(text)))
		if !is {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		threads[device] = append(threads[device], pid)
	}
	return threads, err
}

func deviceOfThread(comm string) (device string, is bool) {
	name, is := strings.CutPrefix(comm, "napi/")
	at := strings.LastIndex(name, "-")
	if !is || at < 1 {
		return "", false
	}
	_, err := strconv.Atoi(name[at+1:])
	return name[:at], err == nil
}
