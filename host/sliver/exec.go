package sliver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/console"
	runc "github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ExecRequest is a command to run in a sliver that runs.
type ExecRequest struct {
	Args []string
	Env  map[string]string // over that of the first process
	Dir  string            // empty: that of the first process
	User string            // empty: root; else name or uid, and optionally :gid, of the sliver
	// TTY gives the command a terminal: Stdout gets what it shows, Stderr nothing.
	TTY    bool
	Stdin  io.Reader // nil: empty. It may be read after the command has ended, until the caller closes it.
	Stdout io.Writer // nil: discarded
	Stderr io.Writer
	Resize <-chan [2]uint16 // columns, rows of the terminal
}

// Exec runs a command in a sliver, within its namespaces and limits, and gives its exit code: 127 with an error when
// there is no such command, 128 + signal when it was killed. When ctx ends, the command is killed. Errors name neither
// command nor node: callers do.
func (r *Runtime) Exec(ctx context.Context, id ID, req ExecRequest) (code int, err error) {
	if len(req.Args) == 0 {
		return -1, errors.New("no command given")
	}
	rec, err := r.runs(id)
	if err != nil {
		return -1, err
	}
	if err := awaitInit(ctx, rec.Process); err != nil {
		return -1, err
	}
	return r.exec(ctx, id, rec, &req)
}

// runs gives the record of a sliver that can take a command.
func (r *Runtime) runs(id ID) (*record, error) {
	o, err := r.Observe(id)
	if err != nil {
		return nil, err
	}
	switch o.State {
	case Running:
		return r.readRecord(id)
	case Paused:
		return nil, errPaused
	default:
		return nil, ErrNotRunning
	}
}

var errPaused = errors.New("it is paused")

// awaitInit waits, right after Start, until the first process has left the runtime's own program: before that, its
// namespaces cannot be joined.
func awaitInit(ctx context.Context, p process) error {
	for wait := 100 * time.Microsecond; ; wait *= 2 {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if err != nil || !p.alive() {
			return ErrNotRunning
		}
		if strings.HasPrefix(string(line), initPath+"\x00") {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func (r *Runtime) exec(ctx context.Context, id ID, rec *record, req *ExecRequest) (int, error) {
	spec := processSpec(req.Args, environment(rec.Env, id.Node, req.Env), rec.Dir, rec.CapAdd)
	spec.Terminal = req.TTY
	if req.Dir != "" {
		spec.Cwd = req.Dir
	}
	root, err := openRoot(rec.Process)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	if err := setUser(root, spec, req.User); err != nil {
		return -1, err
	}
	switch err := findCommand(rec.Process, spec.Args[0], spec.Env, spec.Cwd); {
	case errors.Is(err, fs.ErrNotExist):
		return 127, err
	case errors.Is(err, fs.ErrPermission):
		return 126, err
	}
	dir, err := os.MkdirTemp(r.nodeDir(id), "exec")
	if err != nil {
		return -1, err
	}
	defer os.RemoveAll(dir)
	streams := newStreams()
	defer streams.close()
	if req.TTY {
		err = streams.terminal(dir, req)
	} else {
		err = streams.pipes(req)
	}
	if err != nil {
		return -1, err
	}
	messages, pidFile := filepath.Join(dir, "log"), filepath.Join(dir, "pid")
	// Killing the runtime alone would leave the command running.
	defer context.AfterFunc(ctx, func() { killExec(pidFile) })()
	unlock := sync.OnceFunc(r.lock(id)) // until the runtime is forked: see inGroup
	defer unlock()
	if _, err := r.runs(id); err != nil {
		return -1, err
	}
	err = r.inGroup(ctx, r.groupOf(id), func(cgroup int, launched func()) error {
		if err := r.protect(); err != nil {
			return err
		}
		streams.io.cgroup = cgroup
		streams.io.launched = func() {
			launched()
			unlock()
		}
		opts := &runc.ExecOpts{IO: streams.io, LogFile: messages, PidFile: pidFile}
		if streams.socket != nil {
			opts.ConsoleSocket = streams.socket
		}
		opts.Detach = r.oci.detachExec
		err := r.command(id.Slice, "").Exec(context.WithoutCancel(ctx), id.Node, *spec, opts)
		if err != nil {
			// A command that could not be executed is an orphan, which keeps the sliver from ending.
			r.watch.reapOrphans()
		}
		return err
	})
	if err == nil && r.oci.detachExec {
		err = awaitDetached(pidFile)
	}
	streams.finish()
	if ctx.Err() != nil {
		return -1, context.Cause(ctx)
	}
	return exitCode(err, messages)
}

// awaitDetached waits for a command that the runtime left to this process, its subreaper.
func awaitDetached(pidFile string) error {
	pid, err := readPID(pidFile)
	if err != nil {
		return err
	}
	if p, err := findProcess(pid); err == nil { // else it is a zombie by now
		if err := p.wait(context.Background()); err != nil {
			return err
		}
	}
	if code := reap(pid); code != 0 {
		return &runc.ExitError{Status: code}
	}
	return nil
}

// exitCode distinguishes the failure of the command from one of the runtime.
func exitCode(err error, messages string) (int, error) {
	var status *runc.ExitError
	if err == nil || !errors.As(err, &status) {
		return 0, err
	}
	reported := explain(err, messages)
	if errors.Is(reported, status) { // the runtime reported nothing: this is the command's own status
		return status.Status, nil
	}
	text := strings.ToLower(reported.Error())
	if strings.Contains(text, "not found") || strings.Contains(text, "no such file") {
		return 127, reported
	}
	return 126, reported
}

func killExec(pidFile string) {
	for range 100 { // the runtime may be about to write it
		if pid, err := readPID(pidFile); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // else it is gone
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// streams connect a command with its caller.
type streams struct {
	io     *stdio
	socket *runc.Socket
	ours   []io.Closer // this process's ends of pipes and terminals; closed at the end
	theirs []*os.File  // the command's ends
	copied chan struct{}
	copies int
}

func newStreams() *streams {
	return &streams{io: &stdio{cgroup: -1}, copied: make(chan struct{}, 3)}
}

func (s *streams) pipes(req *ExecRequest) error {
	var err error
	if s.io.in, err = emptyInput(); err != nil {
		return err
	}
	if req.Stdin != nil {
		s.io.in.Close()
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		s.io.in = read
		go func() {
			_, _ = io.Copy(write, req.Stdin) // the command may not read all
			write.Close()
		}()
	}
	s.theirs = append(s.theirs, s.io.in)
	if s.io.out, err = s.output(req.Stdout); err != nil {
		return err
	}
	if same(req.Stdout, req.Stderr) {
		s.io.err = s.io.out
		return nil
	}
	s.io.err, err = s.output(req.Stderr)
	return err
}

// same reports whether both writers are one, as os/exec does: they then share a pipe, which keeps the order.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }() // types that cannot be compared
	return a != nil && a == b
}

// output gives a pipe that is copied to a writer.
func (s *streams) output(to io.Writer) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.theirs, s.ours = append(s.theirs, write), append(s.ours, read)
	if to == nil {
		to = io.Discard
	}
	s.copies++
	go func() {
		_, _ = io.Copy(to, read) // a writer that fails ends the copy, not the command
		s.copied <- struct{}{}
	}()
	return write, nil
}

// terminal receives the terminal that the runtime makes.
func (s *streams) terminal(dir string, req *ExecRequest) error {
	if err := s.pipes(&ExecRequest{}); err != nil { // of the runtime itself
		return err
	}
	var err error
	if s.socket, err = runc.NewConsoleSocket(filepath.Join(dir, "tty")); err != nil {
		return fmt.Errorf("make console socket: %w", err)
	}
	s.ours = append(s.ours, s.socket)
	s.copies++
	go func() {
		defer func() { s.copied <- struct{}{} }()
		tty, err := s.socket.ReceiveMaster()
		if err != nil { // the runtime failed; its log has the cause
			return
		}
		ended, resizing := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(resizing)
			resize(tty, req.Resize, ended)
		}()
		if req.Stdin != nil {
			go func() { _, _ = io.Copy(tty, req.Stdin) }()
		}
		to := req.Stdout
		if to == nil {
			to = io.Discard
		}
		_, _ = io.Copy(to, tty) // ends with EIO, when the last process has closed its side
		close(ended)
		<-resizing
		tty.Close()
	}()
	return nil
}

func resize(tty console.Console, sizes <-chan [2]uint16, ended <-chan struct{}) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			// An error means that the terminal is gone, which Copy notices.
			_ = tty.Resize(console.WinSize{Width: size[0], Height: size[1]})
		case <-ended:
			return
		}
	}
}

// finish waits for output that is still in pipes. A process that the command left in the background may hold its pipe
// open without end, so after 500 ms the rest is given up. (A terminal hangs up when the command ends.)
func (s *streams) finish() {
	for _, f := range s.theirs {
		f.Close()
	}
	if s.socket != nil {
		s.socket.Close() // ends the wait for a terminal that was never made
	}
	late := time.After(500 * time.Millisecond)
	for s.copies > 0 {
		select {
		case <-s.copied:
			s.copies--
		case <-late:
			for _, c := range s.ours {
				c.Close()
			}
		}
	}
}

func (s *streams) close() {
	for _, f := range s.theirs {
		f.Close()
	}
	for _, c := range s.ours {
		c.Close()
	}
}

// setUser resolves a user as docker-exec(1) does, by the sliver's own /etc/passwd and /etc/group.
func setUser(root int, p *specs.Process, name string) error {
	if name == "" {
		return nil
	}
	name, group, hasGroup := strings.Cut(name, ":")
	fields, err := account(root, "/etc/passwd", name)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(fields[2], 10, 16)
	if err != nil {
		return fmt.Errorf("find user %s: %w", name, err)
	}
	if int(uid) >= uids() {
		return fmt.Errorf("be user %s: root is the only user of a node, as this host is an ordinary user's",
			name)
	}
	p.User.UID = uint32(uid)
	if !hasGroup {
		group = fields[3]
	}
	if group == "" {
		group = "0"
	}
	if fields, err = account(root, "/etc/group", group); err != nil {
		return err
	}
	gid, err := strconv.ParseUint(fields[2], 10, 16)
	if err != nil {
		return fmt.Errorf("find group %s: %w", group, err)
	}
	if int(gid) >= uids() {
		return fmt.Errorf("be in group %s: root's is the only group of a node, as this host is an ordinary "+
			"user's", group)
	}
	p.User.GID = uint32(gid)
	if uid != 0 {
		p.Capabilities.Effective, p.Capabilities.Permitted = nil, nil
	}
	return nil
}

// account finds a line of passwd(5) or group(5) by name or number; a number needs no line.
func account(root int, file, name string) ([]string, error) {
	fd, err := openIn(root, file, unix.O_RDONLY|unix.O_NONBLOCK)
	if err == nil {
		f := os.NewFile(uintptr(fd), file)
		defer f.Close()
		for lines := bufio.NewScanner(io.LimitReader(f, 1<<20)); lines.Scan(); {
			if fields := strings.Split(lines.Text(), ":"); len(fields) >= 4 &&
				(fields[0] == name || fields[2] == name) {
				return fields, nil
			}
		}
	}
	if _, err := strconv.ParseUint(name, 10, 16); err == nil {
		return []string{name, "", name, ""}, nil
	}
	return nil, fmt.Errorf("find %s in the node's %s: no such name", name, file)
}
