package sliver

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	runc "github.com/containerd/go-runc"

	"github.com/pergola-net/pergola/host/lack"
)

// engine is the OCI runtime in use and how it differs from others.
type engine struct {
	path        string
	args        []string
	maskCgroups bool // refuses hybrid cgroups, but works without any
	ownCgroups  bool // insists on managing the cgroup itself
	annotates   bool // takes a compiled seccomp filter in an annotation
	detachExec  bool // gives a command a terminal, or lets go of its output, only when it need not wait for it
}

// seccompAnnotation carries a compiled filter to crun (crun(1)): to compile it takes longer than the rest of a launch.
// A runtime without this annotation compiles the filter of the configuration, which is there too.
const seccompAnnotation = "run.oci.seccomp_bpf_data"

func (r *Runtime) findPrograms(ctx context.Context) error {
	var lacks []lack.Lack
	names := []string{r.cfg.Runtime}
	if r.cfg.Runtime == "" {
		names = []string{"crun", "runc"}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return fmt.Errorf("find OCI runtime: %w", err)
		}
		r.oci = engine{path: path}
		if strings.Contains(filepath.Base(path), "crun") {
			r.oci = engine{
				path: path, args: []string{"--cgroup-manager=disabled"}, maskCgroups: true,
				annotates: true,
			}
		} else {
			unsafe, err := checkRunc(ctx, path)
			if err != nil {
				return err
			}
			lacks = append(lacks, unsafe...)
			r.oci.ownCgroups, r.oci.detachExec = true, true
			if isRootless() {
				r.oci.args = []string{"--rootless=true"} // it may make no cgroups
			}
		}
		break
	}
	if r.oci.path == "" {
		lacks = append(lacks, lack.Lack{
			What:    "find " + strings.Join(names, " or ") + ": not in PATH",
			Package: runtimePackage(names[0]),
		})
	}
	path, err := exec.LookPath(initProgram)
	if err != nil {
		lacks = append(lacks, lack.Lack{What: "find " + initProgram + ": not in PATH", Package: initProgram})
	}
	if err := lack.New(lacks...); err != nil {
		return fmt.Errorf("use %s: %w", featureContainers, err)
	}
	if r.init, err = filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("find "+initProgram+": %w", err)
	}
	return nil
}

// initProgram is the first process of slivers, and the package that brings it.
const initProgram = "catatonit"

// runtimePackage is what brings an OCI runtime; "" for one that is not known.
func runtimePackage(name string) string {
	if name == "crun" || name == "runc" {
		return name
	}
	return ""
}

// command gives the runtime for one invocation, whose messages go to a file of its own.
func (r *Runtime) command(slice uint16, messages string) *runc.Runc {
	return &runc.Runc{
		Command: r.oci.path, Root: r.ociDir(slice), ExtraArgs: r.oci.args, Log: messages, LogFormat: runc.JSON,
	}
}

// explain replaces the failure of the runtime by the last error in its log.
func explain(err error, messages string) error {
	f, openErr := os.Open(messages)
	if openErr != nil {
		return err
	}
	defer f.Close()
	var reported string // the last one: runc logs its own clean-up before the cause
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m struct{ Level, Msg string }
		if json.Unmarshal(lines.Bytes(), &m) == nil && m.Level == "error" {
			reported = m.Msg
		}
	}
	if reported == "" {
		return err
	}
	var status *runc.ExitError
	if errors.As(err, &status) {
		return errors.New(reported)
	}
	return fmt.Errorf("%w: %s", err, reported)
}

// stdio are the standard streams of what the runtime starts. None may be a device of the machine: crun changes the
// owner of these files to the container's root user, and did so with the machine's /dev/null.
type stdio struct {
	runc.IO
	in, out, err *os.File
	cgroup       int    // of the runtime, if not negative
	launched     func() // called when the runtime is forked; may be nil
}

func (s *stdio) Set(c *exec.Cmd) {
	c.Stdin, c.Stdout, c.Stderr = s.in, s.out, s.err
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setsid = true // see orphan
	if s.cgroup >= 0 {
		c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, s.cgroup
	}
}

// CloseAfterStart implements runc.StartCloser.
func (s *stdio) CloseAfterStart() error {
	if s.launched != nil {
		s.launched()
	}
	return nil
}

func (s *stdio) Close() error { return nil }

// emptyInput is a pipe without a writer: it reads as end of file.
func emptyInput() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make empty input: %w", err)
	}
	w.Close()
	return r, nil
}

// firstInput is the standard input of a first process. An open one is a pipe of which the process itself holds the
// writing end: it has neither data nor an end, whatever becomes of this server.
func firstInput(open bool) (*os.File, error) {
	if !open {
		return emptyInput()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make standard input: %w", err)
	}
	defer r.Close()
	defer w.Close()
	both, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("make standard input: %w", err)
	}
	return both, nil
}

// awaitFilter makes all other containers wait until the filter of the first one is compiled, which they then use.
func (r *Runtime) awaitFilter() (done func()) {
	if !r.oci.annotates || r.seccomp.Load() != nil {
		return func() {}
	}
	r.compiling.Lock()
	if r.seccomp.Load() != nil {
		r.compiling.Unlock()
		return func() {}
	}
	return r.compiling.Unlock
}

// keepFilter caches the seccomp filter that crun compiled for this container; later ones use it.
func (r *Runtime) keepFilter(id ID) {
	if !r.oci.annotates || r.seccomp.Load() != nil {
		return
	}
	filter, err := os.ReadFile(filepath.Join(r.ociDir(id.Slice), id.Node, "seccomp.bpf"))
	if err != nil || len(filter) == 0 || len(filter)%8 != 0 { // struct sock_filter has 8 bytes
		return
	}
	text := base64.StdEncoding.EncodeToString(filter)
	r.seccomp.Store(&text)
}
