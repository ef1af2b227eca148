package sliver

import (
	"cmp"
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

	"github.com/pergola-net/pergola/model/slice"
)

// cgroups is the machine's cgroup file system, of either version. Groups are named by paths such as
// pergola-4f1a2b3c/7/denver, relative to the root of a hierarchy; only the last level holds processes.
//
// Every process that is started for a sliver starts in the sliver's group, the OCI runtime included: what a crash
// leaves behind is found there and killed.
type cgroups interface {
	path(group string) string    // directory in the hierarchy that lists processes
	make(group string) error     // an existing one is left as it is
	delegate(group string) error // allows limits in the children of the group
	// join prepares the launch thread that calls it: what it forks starts in the group. The caller gives fd to
	// clone3 and closes it; fd is negative if the thread itself moved.
	join(group string) (fd int, err error)
	leave() // the thread ends a little after the launch and would hold the group until then
	limit(group string, l limits) error
	weight(group string) uint64 // of version 2; 0 if the group has none
	processes(group string) ([]int, error)
	freeze(group string, on bool) error
	frozen(group string) bool
	usage(group string) (Usage, error)
	outOfMemory(group string) bool // the kernel killed a process of the group, which had reached its limit
	remove(group string) error
	children(group string) ([]string, error)
}

type limits struct {
	cpu    float64       // cores,
	period time.Duration // of the time in this; 0: slice.DefaultCPUPeriod
	memory int64         // bytes
	pids   int64
	weight uint64 // of version 2, against the groups beside it
}

// quota gives the processor time, in us, that may be used in each period.
func (l limits) quota() (quota int64, period uint64) {
	span := cmp.Or(l.period, slice.DefaultCPUPeriod)
	return slice.CPUQuota(l.cpu, span).Microseconds(), uint64(span / time.Microsecond)
}

// Usage is the resources that the processes of a sliver use.
type Usage struct {
	CPU    time.Duration // since the sliver was made
	Memory uint64        // bytes, page cache included
	PIDs   uint64
}

const cgroupRoot = "/sys/fs/cgroup"

// findCgroups chooses by what is mounted: a hybrid machine has its controllers in version 1.
func (r *Runtime) findCgroups(context.Context) error {
	if isRootless() {
		r.groups = noCgroups{first: r.firstProcess, files: r.filesOf}
		return nil
	}
	if unifiedCgroups() {
		g, err := newCgroups2(cgroupRoot)
		r.groups = g
		return err
	}
	g, err := newCgroups1(cgroupRoot, r.oci.ownCgroups)
	r.groups = g
	return err
}

// groupRoot is the parent of all groups of this server. Its name is a digest of the state directory, so that servers on
// one machine have different ones.
func (r *Runtime) groupRoot() string {
	sum := sha256.Sum256([]byte(r.cfg.StateDir))
	return "pergola-" + hex.EncodeToString(sum[:4])
}

func (r *Runtime) groupOfSlice(id uint16) string {
	return r.groupRoot() + "/" + strconv.Itoa(int(id))
}

// idOfGroup is the reverse of groupOf; ok is false for other groups.
func idOfGroup(group string) (id ID, ok bool) {
	parts := strings.Split(group, "/")
	if len(parts) != 3 {
		return id, false
	}
	number, err := strconv.ParseUint(parts[1], 10, 16)
	return ID{uint16(number), parts[2]}, err == nil
}

// firstProcess is that of a sliver, by its group; zero: none is known.
func (r *Runtime) firstProcess(group string) process {
	if id, ok := idOfGroup(group); ok {
		if rec, err := r.readRecord(id); err == nil {
			return rec.Process
		}
	}
	return process{}
}

// filesOf is the directory of a sliver's file systems, by its group.
func (r *Runtime) filesOf(group string) string {
	if id, ok := idOfGroup(group); ok {
		return r.filesDir(id)
	}
	return ""
}

func (r *Runtime) groupOf(id ID) string { return r.groupOfSlice(id.Slice) + "/" + id.Node }

// killGroup ends every process of a group, and returns when none is left.
func (r *Runtime) killGroup(ctx context.Context, group string) error {
	for {
		pids, err := r.groups.processes(group)
		// With version 1, a launch thread of this process is in the group for a moment.
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

// onlyZombies reports whether all processes have ended and only wait to be reaped.
func onlyZombies(pids []int) bool {
	for _, pid := range pids {
		if _, err := findProcess(pid); err == nil {
			return false
		}
	}
	return true
}

// removeDir removes a group's directory. The kernel takes a process out of its group a little after it has signalled
// the end of the process, so EBUSY is retried for a second.
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

// readCount gives the number in the line "NAME NUMBER" of a file, 0 if there is none.
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

// setFrozen freezes a cgroup of either version, or thaws it.
func setFrozen(c interface {
	Freeze() error
	Thaw() error
}, on bool) error {
	if on {
		return c.Freeze()
	}
	return c.Thaw()
}

// Usage gives the resources that a sliver uses.
func (r *Runtime) Usage(id ID) (Usage, error) {
	u, err := r.groups.usage(r.groupOf(id))
	if errors.Is(err, fs.ErrNotExist) {
		return u, fmt.Errorf("measure node %s: %w", id.Node, ErrNotFound)
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
		return fmt.Errorf("pause node %s: %w", id.Node, ErrNotRunning)
	}
	return r.groups.freeze(r.groupOf(id), on)
}
