package sliver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// noCgroups is in the place of cgroups where this process may make none: it is an ordinary user's. Limits are not kept.
// The processes of a sliver are those in the PID namespace of its first one, with which the kernel ends them.
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

// processes lists what a crash left of a sliver whose first process is not recorded: processes in whose mount namespace
// its file systems are.
func (g noCgroups) processes(group string) (pids []int, err error) {
	if g.first(group).PID != 0 {
		return nil, nil // the kernel ends the others with it
	}
	dir := strings.ReplaceAll(g.files(group), " ", `\040`) // as mountinfo has it (proc(5))
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

// inNamespaceOf lists the processes in the PID namespace of a process: also those that exec has brought there.
func inNamespaceOf(pid int) (pids []int) {
	of := func(dir string) string {
		ns, err := os.Readlink(filepath.Join(dir, "ns", "pid"))
		if err != nil {
			return "" // it has ended, or is another user's
		}
		return ns
	}
	want := of("/proc/" + strconv.Itoa(pid))
	if want == "" {
		return nil
	}
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range all {
		if of(dir) != want {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// freeze stops each process by a signal, which the first of a namespace takes from outside of it only
// (pid_namespaces(7)). It returns when none runs: one may be forked while the others are told. One that waits for a
// child that it has forked with vfork(2) is told, and is not waited for: the child is stopped, and the signal pending.
func (g noCgroups) freeze(group string, on bool) error {
	p := g.first(group)
	signal := unix.SIGCONT
	if on {
		signal = unix.SIGSTOP
	}
	for deadline := time.Now().Add(time.Second); p.alive(); time.Sleep(time.Millisecond) {
		others := 0
		for _, pid := range inNamespaceOf(p.PID) {
			_, state, err := procStat(pid)
			if err != nil || state == 'Z' || state == 'X' || (state == 'T') == on && state != 'D' {
				continue
			}
			if state != 'D' {
				others++
			}
			_ = unix.Kill(pid, signal) // else it has ended
		}
		if others == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes take no signal", others)
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
	for _, pid := range inNamespaceOf(p.PID) {
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
