package sliver

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// noCgroups stands in for cgroups where this process may make none: it is an ordinary user's. Limits are not kept. The
// processes of a sliver are those below its first one, which the kernel ends with it: they are in its PID namespace.
type noCgroups struct {
	first func(group string) process // the first process of a sliver; zero: none is known
	files func(group string) string  // a directory that the mounts of a sliver name, and of no other
}

func (noCgroups) path(string) string                { return "" }
func (noCgroups) make(string) error                 { return nil }
func (noCgroups) delegate(string) error             { return nil }
func (noCgroups) join(string) (fd int, err error)   { return -1, nil }
func (noCgroups) leave()                            {}
func (noCgroups) limit(string, limits) error        { return nil }
func (noCgroups) weight(string) uint64              { return 0 }
func (noCgroups) outOfMemory(string) bool           { return false }
func (noCgroups) remove(string) error               { return nil }
func (noCgroups) children(string) ([]string, error) { return nil, nil }

// processes lists what a crash left of a sliver whose first process is not recorded: what sees its file systems.
func (g noCgroups) processes(group string) (pids []int, err error) {
	if g.first(group).PID != 0 {
		return nil, nil // the kernel ends the others with it
	}
	dir := g.files(group)
	if dir == "" {
		return nil, nil
	}
	lists, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, list := range lists {
		mounts, err := os.ReadFile(list)
		if err != nil || !strings.Contains(string(mounts), dir+"/") {
			continue // it has ended, or is another user's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(list)))
		if err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// tree lists a process and all below it.
func tree(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children") // the pattern is well formed
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread ended
		}
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, tree(n)...)
			}
		}
	}
	return all
}

// freeze stops each process by a signal, which the first of a namespace takes from outside of it only
// (pid_namespaces(7)). One that is forked meanwhile may be missed: so it looks until all are stopped.
func (g noCgroups) freeze(group string, on bool) error {
	p := g.first(group)
	if !p.alive() {
		return nil
	}
	signal := unix.SIGCONT
	if on {
		signal = unix.SIGSTOP
	}
	seen := map[int]bool{}
	for more := true; more; {
		more = false
		for _, pid := range tree(p.PID) {
			if !seen[pid] {
				seen[pid], more = true, true
				_ = unix.Kill(pid, signal) // else it has ended
			}
		}
	}
	return nil
}

func (g noCgroups) frozen(group string) bool {
	_, state, err := procStat(g.first(group).PID)
	return err == nil && state == 'T'
}

func (g noCgroups) usage(group string) (u Usage, err error) {
	p := g.first(group)
	if !p.alive() {
		return u, os.ErrNotExist
	}
	const tick = time.Second / 100 // USER_HZ
	for _, pid := range tree(p.PID) {
		fields, err := statFields(pid)
		if err != nil {
			continue // it has ended
		}
		u.PIDs++
		for _, i := range []int{11, 12} { // utime and stime; those of ended children are lost
			ticks, _ := strconv.ParseUint(fields[i], 10, 64)
			u.CPU += time.Duration(ticks) * tick
		}
		pages, _ := strconv.ParseUint(fields[21], 10, 64)
		u.Memory += pages * uint64(os.Getpagesize())
	}
	return u, nil
}
