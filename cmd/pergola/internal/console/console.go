// Package console runs commands in nodes: one with the caller's terminal, or many at once.
package console

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// Server is the part of the client that is needed here.
type Server interface {
	Exec(ctx context.Context, slice, node string, e api.ExecRequest) (status int, err error)
}

// Run runs a command in a node with the caller's input and output. Where both are a terminal, the command gets one
// too: the caller's is raw meanwhile, so that Ctrl-C reaches the command. The error carries the command's status.
func Run(ctx context.Context, s Server, t *ui.Terminal, name, node string, e api.ExecRequest) error {
	e.Stdout, e.Stderr = t.Out, t.Err
	in, out := t.Stdin(), t.Stdout()
	if e.Stdin != nil && in != nil && out != nil {
		e.TTY = true
		restore, err := raw(in, out, &e)
		if err != nil {
			return err
		}
		defer restore()
	}
	status, err := s.Exec(ctx, name, node, e)
	return ended(ctx, status, err)
}

func ended(ctx context.Context, status int, err error) error {
	switch {
	case ctx.Err() != nil:
		return ui.Interrupted("")
	case err != nil:
		return ui.WithCode(err, ui.ExitNotRun)
	}
	return ui.Exit(status)
}

// raw makes the caller's terminal raw and tells the command its size, now and after every change. restore undoes it.
func raw(in, out *os.File, e *api.ExecRequest) (restore func(), err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	sizes := make(chan api.Size)
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case <-quit:
				return
			case <-changes:
			}
			select {
			case <-quit:
				return
			case sizes <- size(out):
			}
		}
	}()
	e.Size, e.Resize = size(out), sizes
	if name := os.Getenv("TERM"); name != "" {
		e.Env = append([]string{"TERM=" + name}, e.Env...)
	}
	return func() {
		signal.Stop(changes)
		close(quit)
		_ = term.Restore(int(in.Fd()), before)
	}, nil
}

func size(f *os.File) api.Size {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return api.Size{Rows: 24, Cols: 80}
	}
	return api.Size{Rows: uint16(rows), Cols: uint16(columns)}
}
