package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process has what proc(5) shows of one process.
type process struct {
	pid, parent int
	state       byte
	start       string // clock ticks after boot: tells a reused pid from the old one
	command     string
	kernel      bool
	netns       uint64
	text        []string
}

// lookProcesses reports processes, and through them the network namespaces that they are in.
func lookProcesses(add func(string, thing)) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	all := map[int]process{}
	for _, dir := range dirs {
		p, err := readProcess(dir)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		all[p.pid] = p
	}
	self := os.Getpid()
	for _, p := range all {
		kind := "process"
		if p.kernel {
			kind = "kernel thread"
		}
		own := p.pid != self && descends(all, p.pid, self)
		others := isOthers(all, p, all[self]) || p.awaitsInit()
		name := fmt.Sprintf("%d (parent %d, state %c): %s", p.pid, p.parent, p.state, p.command)
		add(fmt.Sprintf("%d %s", p.pid, p.start), thing{kind: kind, name: name, text: p.text, own: own,
			others: others})
		if p.netns != 0 {
			add(strconv.FormatUint(p.netns, 10), thing{
				kind: "network namespace", name: fmt.Sprintf("net:[%d], held by process %d: %s",
					p.netns, p.pid, p.command),
				text: p.text, own: own, others: others,
			})
		}
	}
	return nil
}

// isOthers reports whether a process was started by one that is older than this test, and so does not belong to it.
// What a test leaves behind has this process for its parent, or init, or a reaper that is younger.
func isOthers(all map[int]process, p, self process) bool {
	for range len(all) {
		parent, ok := all[p.parent]
		if !ok || parent.pid == 1 || parent.pid == self.pid {
			return false
		}
		if parent.ticks() < self.ticks() {
			return true
		}
		p = parent
	}
	return false
}

// awaitsInit reports whether nothing is left of the process but its exit status, which only init can collect. Some
// inits do so late: that of the vm tier's guest is a shell script.
func (p process) awaitsInit() bool { return p.state == 'Z' && p.parent == 1 }

// ticks is when the process started.
func (p process) ticks() uint64 {
	n, err := strconv.ParseUint(p.start, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func descends(all map[int]process, pid, ancestor int) bool {
	for range len(all) {
		p, ok := all[pid]
		if !ok || p.parent == 0 {
			return false
		}
		if p.parent == ancestor {
			return true
		}
		pid = p.parent
	}
	return false
}

func readProcess(dir string) (process, error) {
	var p process
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, err
	}
	if p, err = parseStat(stat); err != nil {
		return p, fmt.Errorf("parse %s/stat: %w", dir, err)
	}
	if p.kernel {
		return p, nil
	}
	command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return p, err
	}
	if len(command) > 0 { // empty for zombies
		p.command = strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
	}
	p.text = []string{p.command}
	for _, file := range []string{"environ", "mountinfo", "cgroup"} {
		// Zombies have no environment or mounts, other users' may be hidden: then there is nothing to find
		// marks in.
		if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			p.text = append(p.text, string(text))
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "ns", "net"), &st); err == nil {
		p.netns = st.Ino
	}
	return p, nil
}

// parseStat reads /proc/PID/stat, in which the second field may hold spaces and brackets.
func parseStat(stat []byte) (process, error) {
	const (
		state  = 0
		parent = 1
		flags  = 6
		start  = 19
		kernel = 0x00200000 // PF_KTHREAD
	)
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, errors.New("no command in brackets")
	}
	rest := strings.Fields(string(stat[end+1:]))
	if len(rest) <= start {
		return process{}, fmt.Errorf("%d fields", len(rest))
	}
	p := process{command: string(stat[open+1 : end]), state: rest[state][0], start: rest[start]}
	var err error
	if p.pid, err = strconv.Atoi(strings.TrimSpace(string(stat[:open]))); err != nil {
		return process{}, err
	}
	if p.parent, err = strconv.Atoi(rest[parent]); err != nil {
		return process{}, err
	}
	bits, err := strconv.ParseUint(rest[flags], 10, 64)
	if err != nil {
		return process{}, err
	}
	p.kernel = bits&kernel != 0
	return p, nil
}

// gone reports whether the error means that a process ended while it was examined.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
