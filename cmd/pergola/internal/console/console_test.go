package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	ptys "github.com/containerd/console"
	"golang.org/x/term"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// runner stands for the server: it runs a function in place of a command.
type runner func(ctx context.Context, node string, e api.ExecRequest) (int, error)

func (r runner) Exec(ctx context.Context, _, node string, e api.ExecRequest) (int, error) {
	return r(ctx, node, e)
}

func TestRunInAPipeGivesNoTerminal(t *testing.T) {
	var out, errs bytes.Buffer
	echo := runner(func(_ context.Context, _ string, e api.ExecRequest) (int, error) {
		if e.TTY {
			t.Error("the command has a terminal")
		}
		_, err := io.Copy(e.Stdout, e.Stdin)
		fmt.Fprint(e.Stderr, "done")
		return 3, err
	})
	in := strings.NewReader("hello")
	err := Run(t.Context(), echo, ui.New(in, &out, &errs), "lab", "a", api.ExecRequest{Stdin: in})
	if ui.Code(err) != 3 || out.String() != "hello" || errs.String() != "done" {
		t.Errorf("got status %d, %q, %q", ui.Code(err), &out, &errs)
	}
}

func TestRunThatCannotStartIs125(t *testing.T) {
	fails := runner(func(context.Context, string, api.ExecRequest) (int, error) {
		return 0, errors.New("no such file")
	})
	err := Run(t.Context(), fails, ui.New(nil, io.Discard, io.Discard), "lab", "a", api.ExecRequest{})
	if ui.Code(err) != ui.ExitNotRun || err.Error() != "no such file" {
		t.Errorf("got %v", err)
	}
}

// newPTY gives both sides of a pseudo terminal.
func newPTY(t *testing.T) (person ptys.Console, program *os.File) {
	t.Helper()
	person, name, err := ptys.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	program, err = os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func TestRunOnATerminalIsRawFollowsItsSizeAndRestoresIt(t *testing.T) {
	person, program := newPTY(t)
	if err := person.Resize(ptys.WinSize{Width: 91, Height: 33}); err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(int(program.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	shell := runner(func(_ context.Context, _ string, e api.ExecRequest) (int, error) {
		if !e.TTY || e.Size != (api.Size{Rows: 33, Cols: 91}) {
			t.Errorf("terminal is %v, %+v", e.TTY, e.Size)
		}
		if raw, _ := term.GetState(int(program.Fd())); *raw == *before {
			t.Error("the terminal is not raw")
		}
		// Ctrl-C is a byte for the command, not a signal for pergola.
		if _, err := person.Write([]byte{3}); err != nil {
			t.Error(err)
		}
		key := make([]byte, 1)
		if _, err := io.ReadFull(e.Stdin, key); err != nil || key[0] != 3 {
			t.Errorf("key is %v, %v", key, err)
		}
		return 0, nil
	})
	screen := ui.New(program, program, program)
	if err := Run(t.Context(), shell, screen, "lab", "a", api.ExecRequest{Stdin: program}); err != nil {
		t.Error(err)
	}
	if after, _ := term.GetState(int(program.Fd())); *after != *before {
		t.Error("the terminal was left raw")
	}
}

func TestFanLabelsLinesAndGivesTheWorstStatus(t *testing.T) {
	var out, errs bytes.Buffer
	nodes := []string{"a", "leaf10", "c"}
	first := make(chan struct{})
	run := runner(func(_ context.Context, node string, e api.ExecRequest) (int, error) {
		switch node {
		case "a": // ends last, and is shown first
			<-first
			fmt.Fprint(e.Stdout, "one\ntwo\n")
			return 0, nil
		case "c":
			defer close(first)
			return 0, errors.New("it is stopped")
		}
		fmt.Fprint(e.Stderr, "oops")
		return 4, nil
	})
	err := Fan(t.Context(), run, ui.New(nil, &out, &errs), "lab", nodes, api.ExecRequest{})
	if ui.Code(err) != ui.ExitNotRun {
		t.Errorf("status is %d", ui.Code(err))
	}
	if want := "a       one\na       two\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	if want := "leaf10  oops\nleaf10  exit status 4\nc       error: it is stopped\n"; errs.String() != want {
		t.Errorf("got\n%swant\n%s", &errs, want)
	}
}

func TestFanAsJSON(t *testing.T) {
	var out bytes.Buffer
	screen := ui.New(nil, &out, io.Discard)
	screen.JSON = true
	run := runner(func(_ context.Context, node string, e api.ExecRequest) (int, error) {
		fmt.Fprint(e.Stdout, node)
		return 0, nil
	})
	if err := Fan(t.Context(), run, screen, "lab", []string{"a"}, api.ExecRequest{}); err != nil {
		t.Error(err)
	}
	want := "[\n  {\n    \"node\": \"a\",\n    \"status\": 0,\n    \"stdout\": \"a\",\n" +
		"    \"stderr\": \"\"\n  }\n]\n"
	if out.String() != want {
		t.Errorf("got %s", &out)
	}
}
