package agent

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

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// The sentry keeps the fence when no agent does: a process of its own that outlives the agent, however that ends. The agent writes down until
// when its lease holds, each time that it is renewed; the sentry kills what may start elsewhere when that time is over. It comes with the first
// such node and ends with the last.
//
//	agent ── until when ──> fence/until ──> sentry ── SIGKILL ──> first processes of marked slivers
const (
	sentryLook   = time.Second     // between looks: timers stand still while a machine is suspended
	sentryStay   = 3 * time.Second // after the last node or call: the next one may be about to come
	sentryMargin = fenceMargin / 2 // before the end of the lease: an agent that lives has been here before
)

func fenceDir(stateDir string) string { return filepath.Join(stateDir, "fence") }

// uptime counts the time that the machine was suspended too. All processes agree on it, and it is not set.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// post writes down for the sentry until when the lease holds, unless it has been told.
func (a *Agent) post(l lease) {
	until := (uptime() + time.Until(l.Deadline())).Truncate(10 * time.Millisecond)
	if a.posted == until {
		return
	}
	dir := fenceDir(a.cfg.StateDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		text := strconv.FormatInt(int64(until), 10)
		err = renameio.WriteFile(filepath.Join(dir, "until"), []byte(text), 0o600, renameio.WithTempDir(dir))
	}
	if err != nil {
		a.cfg.Log.Error("write down until when this host may have nodes that start elsewhere", "error", err)
		return
	}
	a.posted = until
}

// postedUntil reads what the agent wrote down; zero, which is over, where it has written nothing.
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

// callSentry starts the sentry if none is there; one that is stays for a while. Nodes that may start elsewhere are made right after a call.
func (a *Agent) callSentry() error {
	if len(a.cfg.Sentry) == 0 {
		return nil
	}
	free, err := takePost(a.cfg.StateDir)
	if err != nil || free == nil {
		return err
	}
	defer free.Close()
	cmd := exec.CommandContext(context.Background(), a.cfg.Sentry[0], append(slices.Clone(a.cfg.Sentry[1:]), a.cfg.StateDir)...)
	cmd.Args[0] = "pergola"
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{free} // with the lock
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(filepath.Join(a.cfg.LogDir, "sentry.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("start the sentry: %w", err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the sentry: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it ends when it is not needed any more
	return nil
}

// takePost takes the lock of the one sentry of a state directory; nil where somebody has it, who sees by the lock's time that he is called.
func takePost(stateDir string) (*os.File, error) {
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

// lastCall is when the agent called its sentry last, by a clock that may be set: only a change says something.
func lastCall(stateDir string) (at time.Time) {
	if fi, err := os.Stat(filepath.Join(fenceDir(stateDir), "lock")); err == nil {
		at = fi.ModTime()
	}
	return at
}

// Sentry does its work for the agent of a state directory, and returns when there is nothing left for it to do. Whoever starts it has taken its
// post, and hands the lock down as an open file.
func Sentry(ctx context.Context, stateDir string, log *slog.Logger) error {
	called := lastCall(stateDir)
	var unread, unended trouble // said when it changes, not at each look
	for idle := uptime(); ctx.Err() == nil; {
		until, err := postedUntil(stateDir)
		if unread.set(err) && err != nil {
			log.Error("read until when nodes may run that start elsewhere", "error", err)
		}
		wait := sentryLook
		switch left := until - sentryMargin - uptime(); {
		case left > 0:
			wait = min(wait, left)
			unended.set(nil)
		default:
			ended, err := sliver.EndMarked(stateDir, plan.FenceNote)
			if news := unended.set(err) && err != nil; ended > 0 || news {
				log.Warn("nodes that may start elsewhere are ended here: nobody renews this host's lease", "nodes", ended, "error", err)
			}
		}
		has, err := sliver.HasMarked(stateDir, plan.FenceNote)
		switch last := lastCall(stateDir); {
		case has || err != nil || !last.Equal(called):
			idle, called = uptime(), last
		case uptime()-idle > sentryStay:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}
