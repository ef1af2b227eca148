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

// What is noted of an interface (datapath.NoteThreaded).
const (
	threadsOurs   uint32 = 1 // that threads poll it is our doing
	threadsTheirs uint32 = 2 // threads have polled it before, and we made them real-time ones
)

// ourPriority is that of threads that we made real-time ones, by which they are known.
const ourPriority = 1

// preferThreads lets real-time threads poll an interface of the machine. Threads that are new, as after the interface
// was down, are no real-time ones: this is called every few seconds. The thread is in the machine's namespace.
func (s *HostNetwork) preferThreads(nic device) error {
	file, on, err := openThreaded(nic.name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if !on { // where it is so already, the kernel would end the threads
		if err := s.data.SetNote(datapath.NoteThreaded, nic.index, threadsOurs); err != nil {
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
		if ordinary, err := isOrdinary(pid); err != nil || !ordinary {
			if err != nil {
				return err
			}
			continue
		}
		if err := s.noteThreads(nic.index); err != nil {
			return err
		}
		want := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: ourPriority}
		if err := unix.SchedSetAttr(pid, &want, 0); err != nil {
			return fmt.Errorf("make the thread that polls it a real-time one: %w", err)
		}
	}
	return nil
}

// noteThreads notes that threads of an interface become real-time ones, if nothing is noted of it.
func (s *HostNetwork) noteThreads(index int) error {
	noted, err := s.data.Notes(datapath.NoteThreaded)
	if err != nil || noted[index] != 0 {
		return err
	}
	return s.data.SetNote(datapath.NoteThreaded, index, threadsTheirs)
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

// leaveThreads undoes preferThreads at interfaces of the machine: those that had threads before keep them, as ordinary
// ones. An interface that cannot be told now, as it is down, stays noted.
func (s *HostNetwork) leaveThreads(but []int) error {
	noted, err := s.data.Notes(datapath.NoteThreaded)
	if err != nil {
		return err
	}
	s.underlay.threaded = false
	for index, how := range noted {
		if slices.Contains(but, index) {
			continue
		}
		err := netns.In(s.host, func() error { return unthread(index, how) })
		if errors.Is(err, unix.EOPNOTSUPP) {
			s.underlay.threaded = true
			continue
		}
		if err != nil {
			return err
		}
		if err := s.data.SetNote(datapath.NoteThreaded, index, 0); err != nil {
			return err
		}
	}
	return nil
}

// unthread makes the threads of an interface ordinary ones, if it is there, and ends them, if they are our doing. Linux
// before 6.17 lets threads that no longer poll sleep, as what they are, until somebody wants threads again. EOPNOTSUPP:
// there is nothing to poll now, but there will be threads when it is up again. The thread is in its namespace.
func unthread(index int, how uint32) error {
	nic, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil //nolint:nilerr // it is gone, with its threads
	}
	threads, err := napiThreads(index)
	if err != nil && !errors.Is(err, errNoThread) {
		return err
	}
	for _, pid := range threads {
		if err := setOrdinary(pid); err != nil {
			return fmt.Errorf("make the thread that polls %s an ordinary one: %w", nic.Name, err)
		}
	}
	if how != threadsOurs {
		return nil
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

// polls gives how a thread that polls an interface is scheduled. In a PID namespace of our own, another process has its
// number, or none: errNoThread.
func polls(pid int) (*unix.SchedAttr, error) {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "napi/") {
		return nil, errNoThread
	}
	return unix.SchedGetAttr(pid, 0)
}

// isOrdinary tells whether a thread that polls an interface is no real-time one.
func isOrdinary(pid int) (bool, error) {
	have, err := polls(pid)
	return err == nil && have.Policy != unix.SCHED_FIFO, err
}

// setOrdinary undoes what preferThreads does to a thread.
func setOrdinary(pid int) error {
	have, err := polls(pid)
	if errors.Is(err, errNoThread) {
		return nil
	}
	if err != nil || have.Policy != unix.SCHED_FIFO || have.Priority != ourPriority {
		return err
	}
	want := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
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
