package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/bench/queues"
	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/bench/tunnel"
	"github.com/pergola-net/pergola/model/slice"
)

// lab is where measurements happen: a directory of their own, and a server in it that is started when needed.
type lab struct {
	binary, tests string // the programs to measure
	dir           string
	held          scratch.Dir // dir, unless a run that was killed had it
	rounds        int
	server        *server        // nil while none was started
	left          bool           // networks may be left that were not taken down
	path          *path.Result   // nil unless it was measured
	tunnels       *tunnel.Result // likewise
	queues        *queues.Run    // likewise
	section       *chart.Section // likewise
}

// server is one that was started.
type server struct {
	*os.Process
	ended chan error // how, once
}

// directories is where labs have theirs. Slivers, whose users are not root, pass through them.
const directories = "/tmp/pgbench-*"

func newLab(o options) (*lab, error) {
	l, err := o.lab()
	if err != nil {
		return nil, err
	}
	if l.held, err = scratch.New(directories); err != nil {
		return nil, err
	}
	l.dir = l.held.Path
	return l, os.Chmod(l.dir, 0o755)
}

// lab gives one without a directory.
func (o options) lab() (l *lab, err error) {
	l = &lab{rounds: o.rounds}
	if l.binary, err = filepath.Abs(o.pergola); err != nil {
		return nil, err
	}
	l.tests, err = filepath.Abs(o.tests)
	return l, err
}

// clearUp takes away what a run left in its directory that was killed: its server may still run there, and hold
// networks.
func (o options) clearUp(ctx context.Context, dir string) error {
	l, err := o.lab()
	if err != nil {
		return err
	}
	l.dir, l.left = dir, true
	if pid, err := l.serverPID(ctx); err == nil { // else it has died, too
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("end its server: %w", err)
		}
	}
	if l.reset(ctx); l.left {
		return errors.New("its networks were not taken down")
	}
	return nil
}

// close takes everything away, also after an interrupt.
func (l *lab) close() {
	l.reset(context.Background())
	if err := l.held.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: clean up:", err)
	}
}

// reset takes down what a measurement that failed left. It has a minute; what it could not do the next one tries
// again, with a new server.
func (l *lab) reset(ctx context.Context) {
	if l.server == nil && !l.left && !l.hasCluster() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := l.start(ctx)
	if err == nil {
		err = l.pergola(ctx, "down", "--all")
	}
	err = errors.Join(err, l.stop(), l.removeCluster(ctx)) // a server that had died took nothing down
	if l.left = err != nil; l.left {
		fmt.Fprintln(os.Stderr, "bench: clean up:", err)
	}
}

func (l *lab) socket() string { return filepath.Join(l.dir, "run", "pergola.sock") }

// start starts the server and waits until it answers.
func (l *lab) start(ctx context.Context) error {
	if l.server != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "log"), 0o755); err != nil {
		return err
	}
	log, err := os.Create(l.log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// Not bound to ctx: an interrupt must leave a server that takes its networks down.
	cmd := exec.Command(l.binary, "server", "--listen", "none", //nolint:noctx // see above
		"--state-dir", filepath.Join(l.dir, "run"), "--data-dir", filepath.Join(l.dir, "lib"), "--log-dir",
		filepath.Join(l.dir, "log"))
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+l.socket())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us alone
	if err := cmd.Start(); err != nil {
		return err
	}
	l.server = &server{cmd.Process, make(chan error, 1)}
	go func(s *server) { s.ended <- cmd.Wait() }(l.server)
	return l.answers(ctx)
}

// answers waits until the server does.
func (l *lab) answers(ctx context.Context) error {
	for l.pergola(ctx, "ls") != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w: %s", ctx.Err(), l.logTail())
		case err := <-l.server.ended:
			l.server = nil
			return fmt.Errorf("start the server: it ended: %w: %s",
				cmp.Or(err, errors.New("exit status 0")), l.logTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (l *lab) log() string { return filepath.Join(l.dir, "log", "server.log") }

// logTail is the end of the server's log, which is removed with the lab; in one line, as errors are.
func (l *lab) logTail() string {
	const most = 1000
	text, err := os.ReadFile(l.log())
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(bytes.TrimSpace(text[max(0, len(text)-most):])), "\n", "; ")
}

// stop stops the server, if there is one. One that has not ended after 20 seconds is killed.
func (l *lab) stop() error {
	s := l.server
	if s == nil {
		return nil
	}
	l.server = nil
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := s.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop the server: %w", err)
		}
		select {
		case err := <-s.ended:
			return err
		case <-time.After(20 * time.Second):
		}
	}
	return errors.New("stop the server: it does not end, though killed")
}

// pergola runs one command of the CLI; its error holds what the command printed.
func (l *lab) pergola(ctx context.Context, args ...string) error {
	_, err := l.output(ctx, args...)
	return err
}

func (l *lab) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.binary, args...)
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+l.socket(), "NO_COLOR=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes what it made
	cmd.WaitDelay = time.Minute
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("pergola %v: %w\n%s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// serverPID asks the server which process it is.
func (l *lab) serverPID(ctx context.Context) (int, error) {
	out, err := l.output(ctx, "version", "--json")
	if err != nil {
		return 0, err
	}
	var v struct{ Server *struct{ PID int } }
	if err := json.Unmarshal(out, &v); err != nil {
		return 0, err
	}
	if v.Server == nil || v.Server.PID <= 1 {
		return 0, errors.New("the server does not say its process")
	}
	return v.Server.PID, nil
}

// file writes a topology and gives its path.
func (l *lab) file(t topo) (string, error) {
	path := filepath.Join(l.dir, t.name+".yaml")
	return path, os.WriteFile(path, []byte(t.yaml), 0o644)
}

// reach checks that a network does what it is for; it is never part of what is timed.
func (l *lab) reach(ctx context.Context, t topo) error {
	return l.pergola(ctx, "exec", "-s", t.name, t.first, "--", "ping", "-c1", "-W5", t.last)
}

func (l *lab) nodes(ctx context.Context, name string) (map[string]slice.NodeStatus, error) {
	out, err := l.output(ctx, "node", "ls", name, "--json")
	if err != nil {
		return nil, err
	}
	var nodes map[string]slice.NodeStatus
	return nodes, json.Unmarshal(out, &nodes)
}

// timed gives the seconds that f takes.
func timed(f func() error) (float64, error) {
	started := time.Now()
	err := f()
	return time.Since(started).Seconds(), err
}
