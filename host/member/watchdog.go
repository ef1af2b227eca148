package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// The watchdog keeps the fence when no agent does: a process of its own that outlives the agent, however that ends. The
// agent writes down until when its lease holds, each time that the lease is renewed. The watchdog kills what may start
// elsewhere when that time is over. It is started before the first such node, and ends after the last.
//
//	agent ── until when ──> fence/until ──> watchdog ── SIGKILL ──> first processes of marked slivers
const (
	watchdogLook   = time.Second     // between looks: timers stop while a machine is suspended
	watchdogLinger = 3 * time.Second // after the last node or call: the next node may be about to be made
	watchdogMargin = fenceMargin / 2 // before the end of the lease: an agent that runs ended the nodes before
)

func fenceDir(stateDir string) string { return filepath.Join(stateDir, "fence") }

// uptime counts the time that the machine was suspended, too. All processes read the same, and it cannot be set.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// Watchdog starts the watchdog of a state directory, and writes down for it until when the lease holds.
type Watchdog struct {
	StateDir string
	LogDir   string
	Command  []string // that calls RunWatchdog, to which the state directory is added; empty: there is no watchdog
	Log      *slog.Logger

	posted time.Duration // what was written last; of the goroutine that keeps the fence
}

// Post writes down until when the lease holds, unless that has been written.
func (w *Watchdog) Post(l Lease) {
	until := (uptime() + time.Until(l.Deadline())).Truncate(10 * time.Millisecond)
	if w.posted == until {
		return
	}
	dir := fenceDir(w.StateDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		text := strconv.FormatInt(int64(until), 10)
		err = renameio.WriteFile(filepath.Join(dir, "until"), []byte(text), 0o600, renameio.WithTempDir(dir))
	}
	if err != nil {
		w.Log.Error("write down until when this host may have nodes that start elsewhere", "error", err)
		return
	}
	w.posted = until
}

// postedUntil reads what Post wrote; zero, which is over, where nothing was written.
func postedUntil(stateDir string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(fenceDir(stateDir), "until"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(n), err
}

// Call starts the watchdog if none runs; one that runs stays for a while. Nodes that may start elsewhere are made right
// after a call.
func (w *Watchdog) Call() error {
	if len(w.Command) == 0 {
		return nil
	}
	free, err := takeLock(w.StateDir)
	if err != nil || free == nil {
		return err
	}
	defer free.Close()
	cmd := exec.CommandContext(context.Background(), w.Command[0],
		append(slices.Clone(w.Command[1:]), w.StateDir)...)
	cmd.Args[0] = "pergola"
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{free} // with the lock
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(filepath.Join(w.LogDir, "watchdog.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("start the watchdog: %w", err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the watchdog: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it ends when it is not needed any more
	return nil
}

// takeLock takes the lock of the one watchdog of a state directory; nil where a watchdog has it. That one sees by the
// lock's time that it is called. A watchdog of an earlier version has the same lock.
func takeLock(stateDir string) (*os.File, error) {
	dir := fenceDir(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	now := time.Now()
	if err := os.Chtimes(f.Name(), now, now); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// lastCall is when the agent called its watchdog last, by a clock that may be set: only a change means anything.
func lastCall(stateDir string) (at time.Time) {
	if fi, err := os.Stat(filepath.Join(fenceDir(stateDir), "lock")); err == nil {
		at = fi.ModTime()
	}
	return at
}

// Marked are the nodes of a state directory that may start elsewhere, as far as a process without a runtime can see and
// end them.
type Marked struct {
	End func() (ended int, err error)
	Has func() (bool, error)
}

// RunWatchdog is the watchdog of a state directory. It returns when there is nothing left for it to do. The process
// that starts it has taken the lock, and hands it down as an open file.
func RunWatchdog(ctx context.Context, stateDir string, nodes Marked, log *slog.Logger) error {
	called := lastCall(stateDir)
	var unread, unended Problem // logged when they change, not at each look
	for idle := uptime(); ctx.Err() == nil; {
		until, err := postedUntil(stateDir)
		if unread.Set(err) && err != nil {
			log.Error("read until when nodes may run that start elsewhere", "error", err)
		}
		wait := watchdogLook
		switch left := until - watchdogMargin - uptime(); {
		case left > 0:
			wait = min(wait, left)
			unended.Set(nil)
		default:
			ended, err := nodes.End()
			if news := unended.Set(err) && err != nil; ended > 0 || news {
				log.Warn("nodes that may start elsewhere are ended here: "+
					"this host's lease is not renewed",
					"nodes", ended, "error", err)
			}
		}
		has, err := nodes.Has()
		switch last := lastCall(stateDir); {
		case has || err != nil || !last.Equal(called):
			idle, called = uptime(), last
		case uptime()-idle > watchdogLinger:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}
