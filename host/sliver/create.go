package sliver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
)

// Create makes the namespaces, the root file system and the first process of a sliver, which waits. After a failure
// nothing is left.
func (r *Runtime) Create(ctx context.Context, s Spec) (pid int, err error) {
	if err := checkName("node", s.Node); err != nil {
		return 0, err
	}
	unlock := r.lock(s.ID)
	defer unlock()
	if exists(r.nodeDir(s.ID)) {
		return 0, fmt.Errorf("create node %s: %w", s.Node, ErrExists)
	}
	if _, err := r.sliceName(s.Slice); err != nil {
		return 0, fmt.Errorf("create node %s: %w", s.Node, err)
	}
	withDefaults(&s)
	rec, err := r.create(ctx, &s)
	if err != nil {
		// The caller's context may be what ended the attempt.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return 0, fmt.Errorf("create node %s: %w", s.Node, errors.Join(err, r.delete(undo, s.ID)))
	}
	r.watchProcess(s.ID, rec.Process)
	return rec.Process.PID, nil
}

func (r *Runtime) create(ctx context.Context, s *Spec) (*record, error) {
	defer r.awaitFilter()()
	rec := &record{SliceName: s.SliceName, Digest: s.Digest, Created: time.Now(), Notes: maps.Clone(s.Notes)}
	if err := os.Mkdir(r.nodeDir(s.ID), 0o700); err != nil {
		return nil, err
	}
	if err := r.writeRecord(s.ID, rec); err != nil {
		return nil, err
	}
	plain, err := s.resolved()
	if err != nil {
		return nil, err
	}
	s = &plain
	if err := r.addVolumes(s); err != nil {
		return nil, err
	}
	root, err := r.makeRootfs(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := r.makeStages(s); err != nil {
		return nil, err
	}
	if err := r.makeDevices(s); err != nil {
		return nil, err
	}
	if s.Socket {
		if err := os.MkdirAll(r.socketDir(s.ID), 0o755); err != nil {
			return nil, fmt.Errorf("make directory of control socket: %w", err)
		}
	}
	now, later := splitSysctls(s.Sysctls)
	rec.Sysctls = later
	rec.Command = s.Command
	if len(rec.Command) == 0 {
		rec.Command = root.image.command(s.Args)
	}
	rec.Plain = len(rec.Command) == 0
	rec.Env = environment(root.image.Env, s.Hostname, s.Env)
	rec.Dir, rec.CapAdd = root.image.dir(), s.CapAdd
	if err := r.bundle(s, root, rec, now); err != nil {
		return nil, err
	}
	group := r.groupOf(s.ID)
	if err := r.groups.make(group); err != nil {
		return nil, err
	}
	if rec.Process, err = r.runCreate(ctx, s, root, rec.Plain); err != nil {
		return nil, err
	}
	own := limits{cpu: s.CPU, period: s.CPUPeriod, memory: s.Memory, pids: s.PIDs, weight: weightOf(s.CPU)}
	if err := r.groups.limit(group, own); err != nil {
		return nil, err
	}
	if err := r.weigh(s.ID, own.weight); err != nil {
		return nil, err
	}
	if err := writeFiles(rec.Process, s.Slice, s.Files); err != nil {
		return nil, err
	}
	return rec, r.writeRecord(s.ID, rec)
}

// runCreate has the OCI runtime make the container. A plain one is started at once, which saves it a second run of
// the runtime: its only process sleeps.
func (r *Runtime) runCreate(ctx context.Context, s *Spec, root *rootfs, plain bool) (process, error) {
	id := s.ID
	in, err := firstInput(s.Stdin)
	if err != nil {
		return process{}, err
	}
	defer in.Close()
	name, err := r.logPath(id)
	if err != nil {
		return process{}, err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return process{}, fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	dir := r.nodeDir(id)
	messages, pidFile := filepath.Join(dir, "create.log"), filepath.Join(dir, "pid")
	err = r.inGroup(ctx, r.groupOf(id), func(cgroup int, launched func()) error {
		if err := errors.Join(root.mount(), r.mountStages(s), r.mountDevices(s)); err != nil {
			return err
		}
		if err := r.protect(); err != nil {
			return err
		}
		opts := &runc.CreateOpts{
			IO: &stdio{in: in, out: out, err: out, cgroup: cgroup, launched: launched}, PidFile: pidFile,
		}
		if plain {
			opts.Detach = true
			_, err := r.command(id.Slice, messages).Run(ctx, id.Node, dir, opts)
			return err
		}
		return r.command(id.Slice, messages).Create(ctx, id.Node, dir, opts)
	})
	if err != nil {
		return process{}, explain(err, messages)
	}
	r.keepFilter(id)
	pid, err := readPID(pidFile)
	if err != nil {
		return process{}, err
	}
	return findProcess(pid)
}

func readPID(file string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read process id: %w", err)
	}
	return pid, nil
}

// inGroup calls do on a launch thread; what it forks starts in the group. The thread leaves the group when do calls
// launched, or else returns. The group must not be frozen before: that would freeze a thread of this process with
// version 1, and with either version a child between fork and exec, for which the whole process waits. So the caller
// holds the lock of the sliver.
func (r *Runtime) inGroup(ctx context.Context, group string, do func(cgroup int, launched func()) error) error {
	cgroup := -1
	join := func() (err error) {
		cgroup, err = r.groups.join(group)
		return err
	}
	return r.launch.run(ctx, join, func(launched func()) error {
		if cgroup >= 0 {
			defer unix.Close(cgroup)
		}
		defer r.groups.leave()
		return do(cgroup, func() {
			r.groups.leave()
			launched()
		})
	})
}
