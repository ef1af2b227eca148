package sliver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// Start sets the sysctls of interfaces and lets the command run. Starting a running sliver does nothing.
func (r *Runtime) Start(ctx context.Context, id ID) error {
	defer r.lock(id)()
	rec, err := r.readRecord(id)
	if err != nil {
		return err
	}
	if err := r.start(ctx, id, rec); err != nil {
		return fmt.Errorf("start node %s: %w", id.Node, err)
	}
	return nil
}

func (r *Runtime) start(ctx context.Context, id ID, rec *record) error {
	if !rec.Process.alive() {
		return ErrNotRunning
	}
	if !rec.Started.IsZero() {
		return nil
	}
	if err := setSysctls(rec.Process, rec.Sysctls); err != nil {
		return err
	}
	if !rec.Plain {
		if err := findCommand(rec.Process, rec.Command[0], rec.Env, rec.Dir); err != nil {
			return err
		}
		messages := filepath.Join(r.nodeDir(id), "start.log")
		err := r.command(id.Slice, messages).Start(ctx, id.Node)
		// An earlier server may have been killed after it started this, and before it recorded that.
		if err != nil && !r.hasStarted(ctx, id) {
			return explain(err, messages)
		}
	}
	rec.Started = time.Now()
	return r.writeRecord(id, rec)
}

func (r *Runtime) hasStarted(ctx context.Context, id ID) bool {
	c, err := r.command(id.Slice, "").State(ctx, id.Node)
	return err == nil && c.Status == "running"
}

// setSysctls writes settings of interfaces from inside the sliver's network namespace.
func setSysctls(p process, values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	return onThread(func() error {
		ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		for key, value := range values {
			path := slice.SysctlPath(key)
			// We are root here, and all of /proc/sys is the machine's.
			if !slice.NetSysctl(key) || !fs.ValidPath(path) {
				return fmt.Errorf("set sysctl %s: not a parameter of a network namespace", key)
			}
			file := filepath.Join("/proc/sys", path)
			if err := os.WriteFile(file, []byte(value), 0); err != nil {
				return fmt.Errorf("set sysctl %s to %s: %w", key, value, err)
			}
		}
		return nil
	})
}

// findCommand looks for the program as execvp(3) will. Without it, catatonit would report a missing program in the log
// alone, and the runtime on the standard error of the command's caller.
func findCommand(in process, name string, env []string, dir string) error {
	root, err := openRoot(in)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	try := []string{name}
	if !strings.Contains(name, "/") {
		try = nil
		for _, dir := range strings.Split(lookup(env, "PATH"), ":") {
			try = append(try, path.Join(dir, name))
		}
	}
	cause := fs.ErrNotExist
	for _, p := range try {
		if !path.IsAbs(p) {
			p = path.Join(dir, p)
		}
		err := executable(root, p)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			cause = err
		}
	}
	if len(try) > 1 {
		return fmt.Errorf("find command %q in PATH %s of the node: %w", name, lookup(env, "PATH"), cause)
	}
	return fmt.Errorf("find command %q in the node: %w", name, cause)
}

func executable(root int, name string) error {
	fd, err := openIn(root, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

func lookup(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
