package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where a machine's first process listens and its Pergola writes, in the machine.
const (
	controlSocket = "/run/machine.sock"
	logFile       = "/var/log/pergola/server.log"
)

// What the first process can be asked for, one request a connection.
const (
	doStart   = "start"
	doRestart = "restart"
	doKill    = "kill"
	doStatus  = "status"
)

type request struct {
	Do   string
	Args []string
}

// Status says what became of a machine's Pergola.
type Status struct {
	Args    []string // with which it was started; nil: never
	Running bool
	Ended   string // how, if it has ended: "exit status 1", "killed"
}

type reply struct {
	Status
	Error string
}

// ask sends a request to the machine's first process.
func (m *Machine) ask(r request) (Status, error) {
	c, err := m.connect()
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = c.Close() }()
	var answer reply
	if err := errors.Join(json.NewEncoder(c).Encode(r), json.NewDecoder(c).Decode(&answer)); err != nil {
		return Status{}, fmt.Errorf("ask machine %s: %w", m.Name, err)
	}
	if answer.Error != "" {
		return Status{}, fmt.Errorf("machine %s: %s", m.Name, answer.Error)
	}
	return answer.Status, nil
}

// stopTimeout is how long a Pergola that is to be started again may take to end.
const stopTimeout = 15 * time.Second

// supervisor is the first process of a machine: it starts one Pergola and takes the exit statuses of all processes that
// have no other parent, nodes' among them. It ends by a signal only, and the machine with it.
type supervisor struct {
	requests sync.Mutex // one at a time
	mu       sync.Mutex // guards the rest; no child is reaped while it is held
	pid      int        // of the running Pergola, or 0
	ended    chan struct{}
	status   Status
}

// Init does the work of a machine's first process until ctx ends.
func Init(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", controlSocket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = l.Close() }()
	s := &supervisor{}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			s.reap()
		}
	}()
	if _, err := os.Stdout.WriteString(ready); err != nil {
		return err
	}
	if err := dropStreams(); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go s.serve(c)
	}
}

// dropStreams closes those of the command that booted the machine, which waits for that.
func dropStreams() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// reap takes the exit statuses that wait for it.
func (s *supervisor) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var how unix.WaitStatus
		pid, err := unix.Wait4(-1, &how, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid != s.pid {
			continue
		}
		s.pid, s.status.Running = 0, false
		s.status.Ended = fmt.Sprintf("exit status %d", how.ExitStatus())
		if how.Signaled() {
			s.status.Ended = how.Signal().String()
		}
		close(s.ended)
	}
}

func (s *supervisor) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var r request
	var answer reply
	if json.NewDecoder(c).Decode(&r) != nil {
		return // the caller only looked which process listens
	}
	if err := s.do(r); err != nil {
		answer.Error = err.Error()
	}
	s.mu.Lock()
	answer.Status = s.status
	s.mu.Unlock()
	_ = json.NewEncoder(c).Encode(answer) // the caller may have gone
}

func (s *supervisor) do(r request) error {
	s.requests.Lock()
	defer s.requests.Unlock()
	switch r.Do {
	case doStart:
		return s.start(r.Args)
	case doKill:
		return s.end(unix.SIGKILL)
	case doRestart:
		s.mu.Lock()
		args := s.status.Args
		s.mu.Unlock()
		if args == nil {
			return errors.New("restart pergola: it was never started")
		}
		if err := s.end(unix.SIGTERM); err != nil {
			return err
		}
		return s.start(args)
	}
	return nil
}

func (s *supervisor) start(args []string) error {
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start pergola: %w", err)
	}
	defer func() { _ = log.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		return errors.New("start pergola: it runs")
	}
	program := filepath.Join(binDir, "pergola") // by its path: a newer build is used
	p, err := os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
		Dir: "/", Files: []*os.File{nil, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start pergola: %w", err)
	}
	s.pid, s.ended, s.status = p.Pid, make(chan struct{}), Status{Args: args, Running: true}
	_ = p.Release() // reap waits for it
	return nil
}

// end sends a signal to Pergola and returns when it has ended.
func (s *supervisor) end(how unix.Signal) error {
	s.mu.Lock()
	if s.pid == 0 {
		s.mu.Unlock()
		return nil
	}
	err := unix.Kill(s.pid, how)
	ended := s.ended
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("end pergola: %w", err)
	}
	select {
	case <-ended:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("end pergola: it did not within %v of its signal", stopTimeout)
	}
}
