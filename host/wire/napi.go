package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Where best effort waits for what is reserved (datapath/bpf/early.h), an interface is polled by threads of the kernel
// (threaded NAPI), which are real-time ones: what they do, they do before all else on their core. The kernel's own
// bound for real-time threads (sched_rt_runtime_us, the fair server of Linux 6.12) stays as it is.

// errNoThread is for kernels before 6.8, which do not say which threads poll an interface, for interfaces that are
// down, and where the machine's threads are not seen.
var errNoThread = errors.New("the kernel names no thread that polls it")

// preferThreads lets real-time threads poll an interface of the machine. Threads that are new, as after the interface
// was down, are no real-time ones: this is called every few seconds. The thread is in the machine's namespace.
func (s *HostNetwork) preferThreads(nic device) error {
	file, on, err := openThreaded(nic.name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if !on { // where it is so already, the kernel would end the threads
		if err := s.data.SetNote(datapath.NoteThreaded, nic.index, 1); err != nil {
			return err
		}
		if _, err := file.WriteAt([]byte("1"), 0); err != nil {
			return fmt.Errorf("let threads poll it: %w", err)
		}
	}
	threads, err := napiThreads(nic.index)
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return errNoThread
	}
	for _, pid := range threads {
		if err := setRealTime(pid); err != nil {
			return err
		}
	}
	return nil
}

// shareCores says what best effort may have of each core, and takes what it brought about away at all interfaces but
// these; or at all, where it is 0.
func (s *HostNetwork) shareCores(bestEffort float64, but []int) error {
	if bestEffort == 0 {
		but = nil
	}
	if err := s.leaveThreads(but); err != nil {
		return err
	}
	return s.data.SetBestEffort(bestEffort)
}

// updateThreads makes the threads that poll an interface real-time ones, where best effort waits at it.
func (s *HostNetwork) updateThreads(nic device) {
	delete(s.underlay.ordinary, nic.name)
	if !s.underlay.early || s.underlay.why[nic.name] != "" {
		return
	}
	if err := netns.In(s.host, func() error { return s.preferThreads(nic) }); err != nil {
		s.underlay.ordinary[nic.name] = err
	}
}

// leaveThreads undoes preferThreads at interfaces of the machine: those that had threads before keep them.
func (s *HostNetwork) leaveThreads(but []int) error {
	noted, err := s.data.Notes(datapath.NoteThreaded)
	if err != nil {
		return err
	}
	for index := range noted {
		if slices.Contains(but, index) {
			continue
		}
		if err := netns.In(s.host, func() error { return unthread(index) }); err != nil {
			return err
		}
		if err := s.data.SetNote(datapath.NoteThreaded, index, 0); err != nil {
			return err
		}
	}
	return nil
}

// unthread ends the threads of an interface, if it is there. The thread is in its namespace.
func unthread(index int) error {
	nic, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil //nolint:nilerr // it is gone, with its threads
	}
	file, on, err := openThreaded(nic.Name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if !on {
		return nil
	}
	if _, err := file.WriteAt([]byte("0"), 0); err != nil {
		return fmt.Errorf("let no threads poll %s: %w", nic.Name, err)
	}
	return nil
}

// openThreaded opens the file that says whether threads poll an interface of the thread's namespace, which /sys need
// not show.
func openThreaded(name string) (file *os.File, on bool, err error) {
	sys, err := openSysfs()
	if err != nil {
		return nil, false, fmt.Errorf("open sysfs: %w", err)
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	fd, err := unix.Openat(int(sys.Fd()), "class/net/"+name+"/threaded", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("ask whether threads poll it: %w", err)
	}
	file = os.NewFile(uintptr(fd), "threaded")
	first := make([]byte, 1)
	if _, err := file.ReadAt(first, 0); err != nil {
		return nil, false, errors.Join(fmt.Errorf("ask whether threads poll it: %w", err), file.Close())
	}
	return file, first[0] != '0', nil
}

// openSysfs opens one that shows the thread's network namespace, and is mounted nowhere.
func openSysfs() (*os.File, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sysfs"), nil
}

// setRealTime gives a thread that polls an interface SCHED_FIFO. In a PID namespace of our own, another process has its
// number.
func setRealTime(pid int) error {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "napi/") {
		return errNoThread
	}
	have, err := unix.SchedGetAttr(pid, 0)
	if err != nil || have.Policy == unix.SCHED_FIFO {
		return err
	}
	want := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	return unix.SchedSetAttr(pid, &want, 0)
}

// napiThreads gives the threads that poll an interface of the thread's namespace. Linux 6.8 and later answer, by the
// generic netlink family netdev.
func napiThreads(index int) (pids []int, err error) {
	const (
		napiGet     = 11 // NETDEV_CMD_NAPI_GET
		attrIfindex = 1  // NETDEV_A_NAPI_IFINDEX
		attrPID     = 4  // NETDEV_A_NAPI_PID
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return nil, errNoThread
	}
	c, err := rtnl.Open(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("ask what polls it: %w", err)
	}
	defer func() { _ = c.Close() }()
	header := []byte{napiGet, 1, 0, 0} // struct genlmsghdr: command, version
	all, err := c.Dump(family.ID, family.ID, header, rtnl.U32(attrIfindex, uint32(index)))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errNoThread
	}
	if err != nil {
		return nil, fmt.Errorf("ask what polls it: %w", err)
	}
	for _, body := range all {
		for a := rtnl.Attributes(body[len(header):]); a.Next(); {
			if a.Kind == attrPID {
				pids = append(pids, int(a.U32()))
			}
		}
	}
	return pids, nil
}
