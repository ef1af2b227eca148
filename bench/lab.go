package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/slice"
)

// lab is where measurements happen: a directory of their own, and a server in it that is started when needed.
type lab struct {
	binary, tests string // the programs to measure
	dir           string
	rounds        int
	server        *exec.Cmd    // nil while none runs
	path          *path.Result // nil unless it was measured
}

func newLab(o options) (*lab, error) {
	binary, err := filepath.Abs(o.pergola)
	if err != nil {
		return nil, err
	}
	tests, err := filepath.Abs(o.tests)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "pgbench")
	if err != nil {
		return nil, err
	}
	// Slivers, whose users are not root, pass through it.
	return &lab{binary: binary, tests: tests, dir: dir, rounds: o.rounds}, os.Chmod(dir, 0o755)
}

// close takes everything away, also after an interrupt.
func (l *lab) close() {
	if l.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.pergola(ctx, "down", "--all"); err != nil {
			fmt.Fprintln(os.Stderr, "bench: clean up:", err)
		}
		if err := l.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: clean up:", err)
		}
	}
	if err := os.RemoveAll(l.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench: clean up:", err)
	}
}

// reset takes down what a measurement that failed left.
func (l *lab) reset(ctx context.Context) error {
	if l.server == nil {
		return nil
	}
	return errors.Join(l.pergola(ctx, "down", "--all"), l.stop())
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
	log, err := os.Create(filepath.Join(l.dir, "log", "server.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// Not bound to ctx: an interrupt must leave a server that takes its networks down.
	cmd := exec.Command(l.binary, "server", //nolint:noctx // see above
		"--state-dir", filepath.Join(l.dir, "run"), "--data-dir", filepath.Join(l.dir, "lib"), "--log-dir", filepath.Join(l.dir, "log"))
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+l.socket())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us alone
	if err := cmd.Start(); err != nil {
		return err
	}
	l.server = cmd
	for {
		if l.pergola(ctx, "ls") == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (l *lab) stop() error {
	cmd := l.server
	l.server = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return cmd.Wait()
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
