package sliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is the machine's cgroup file system, of either version. Groups are named by paths such as
// pergola-4f1a2b3c/7/denver, relative to the root of a hierarchy; only the last level holds processes.
//
// Everything that is started for a sliver is born in the sliver's group, the OCI runtime itself included: whatever a crash
// leaves behind can be found there and killed.
type cgroups interface {
	path(group string) string    // of the directory in the hierarchy that is asked about processes
	make(group string) error     // an existing one is left as it is
	delegate(group string) error // the children of the group are to have limits
	// join prepares the launch thread that calls it: what it forks is born in the group. fd is to be given
	// to clone3 and closed, or negative where the thread itself moved.
	join(group string) (fd int, err error)
	leave() // the thread lives a moment longer than the launch, and would keep the group
	limit(group string, l limits) error
	processes(group string) ([]int, error)
	freeze(group string, on bool) error
	frozen(group string) bool
	usage(group string) (Usage, error)
	outOfMemory(group string) bool // the kernel has killed a process of the group, which had reached its limit
	remove(group string) error
	children(group string) ([]string, error)
}

type limits struct {
	cpu    float64 // cores
	memory int64   // bytes
	pids   int64
}

const cpuPeriod = 100 * time.Millisecond

// quota gives the processor time, in us, that may be used in each period.
func (l limits) quota() (quota int64, period uint64) {
	period = uint64(cpuPeriod / time.Microsecond)
	return int64(l.cpu * float64(period)), period
}

// Usage is what the processes of a sliver use.
type Usage struct {
	CPU    time.Duration // since the sliver was made
	Memory uint64        // bytes, page cache included
	PIDs   uint64
}

const cgroupRoot = "/sys/fs/cgroup"

// findCgroups chooses by what is mounted: a hybrid machine has its controllers in version 1.
func (r *Runtime) findCgroups(context.Context) error {
	if unifiedCgroups() {
		g, err := newCgroups2(cgroupRoot)
		r.groups = g
		return err
	}
	g, err := newCgroups1(cgroupRoot, r.oci.ownCgroups)
	r.groups = g
	return err
}

// groupRoot is the parent of all our groups: its name is made from the state directory, so that servers side by
// side do not meet.
func (r *Runtime) groupRoot() string {
	sum := sha256.Sum256([]byte(r.cfg.StateDir))
	return "pergola-" + hex.EncodeToString(sum[:4])
}

func (r *Runtime) groupOfSlice(id uint16) string {
	return r.groupRoot() + "/" + strconv.Itoa(int(id))
}

func (r *Runtime) groupOf(id ID) string { return r.groupOfSlice(id.Slice) + "/" + id.Node }

// killGroup ends every process of a group, and returns when none is left.
func (r *Runtime) killGroup(ctx context.Context, group string) error {
	for {
		pids, err := r.groups.processes(group)
		// With version 1, a launch thread of ours is in the group for a moment.
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			p, err := findProcess(pid)
			if err != nil {
				continue // gone
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
			if err := p.wait(ctx); err != nil {
				return err
			}
			reap(pid)
		}
		if onlyZombies(pids) {
			return nil
		}
	}
}

// onlyZombies is true of processes that have ended and whose parent has not noticed yet.
func onlyZombies(pids []int) bool {
	for _, pid := range pids {
		if _, err := findProcess(pid); err == nil {
			return false
		}
	}
	return true
}

// removeDir removes a group's directory. The kernel counts a process out of its group a little after it has
// told of its end.
func removeDir(dir string) error {
	for wait := 50 * time.Microsecond; ; wait *= 2 {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if below, _ := subdirs(dir); !errors.Is(err, unix.EBUSY) || len(below) > 0 || wait > time.Second {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(wait)
	}
}

func readPIDs(file string) ([]int, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup: %w", err)
	}
	var pids []int
	for _, line := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func readNumber(file string) (uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read cgroup: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// readCount reads a line of a file that names what it counts.
func readCount(file, name string) (count uint64) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			count, _ = strconv.ParseUint(strings.TrimSpace(rest), 10, 64) // 0 for what is no number
		}
	}
	return count
}

func subdirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Usage gives what a sliver uses.
func (r *Runtime) Usage(id ID) (Usage, error) {
	u, err := r.groups.usage(r.groupOf(id))
	if errors.Is(err, fs.ErrNotExist) {
		return u, fmt.Errorf("measure sliver %s: %w", id, ErrNotFound)
	}
	return u, err
}

// Pause stops every process of a sliver; packets for it are still queued by its kernel.
func (r *Runtime) Pause(id ID) error { return r.freeze(id, true) }

// Resume undoes Pause.
func (r *Runtime) Resume(id ID) error { return r.freeze(id, false) }

func (r *Runtime) freeze(id ID, on bool) error {
	defer r.lock(id)()
	rec, err := r.readRecord(id)
	if err != nil {
		return err
	}
	if !rec.Process.alive() {
		return fmt.Errorf("pause sliver %s: %w", id, ErrNotRunning)
	}
	return r.groups.freeze(r.groupOf(id), on)
}
