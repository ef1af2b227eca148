package sliver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process identifies the first process of a sliver by number and start time: a later process with the same number is
// another one.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of proc(5) stat
}

// findProcess identifies the running process of that number.
func findProcess(pid int) (process, error) {
	start, state, err := procStat(pid)
	if err != nil {
		return process{}, err
	}
	if state == 'Z' || state == 'X' {
		return process{}, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return process{pid, start}, nil
}

func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	now, err := findProcess(p.PID)
	return err == nil && now == p
}

// open gives a pidfd of the process, or ESRCH if it has ended.
func (p process) open() (int, error) {
	if p.PID == 0 {
		return -1, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	// The number may have been reused before the descriptor was opened, never after.
	if start, _, err := procStat(p.PID); err != nil || start != p.Start {
		unix.Close(fd)
		return -1, unix.ESRCH
	}
	return fd, nil
}

// wait returns when the process (a zombie counts as ended) or ctx has ended.
func (p process) wait(ctx context.Context) error {
	fd, err := p.open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", p.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	if err := waitReadable(f); err != nil {
		return fmt.Errorf("wait for process %d: %w", p.PID, context.Cause(ctx))
	}
	return nil
}

func procStat(pid int) (start uint64, state byte, err error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, 0, err
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

// statFields gives the fields of proc(5) stat from the third, the state, on: those after the last parenthesis, because
// a process name may hold any character.
func statFields(pid int) ([]string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return nil, fmt.Errorf("read state of process %d: %d fields", pid, len(fields))
	}
	return fields, nil
}

// waitReadable parks the goroutine, not a thread, until the descriptor polls readable.
func waitReadable(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	})
}

// reap collects the exit status of a child; the process of a sliver that another server process made may be none.
func reap(pid int) (code int) {
	var status unix.WaitStatus
	if got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil || got != pid {
		return -1
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
