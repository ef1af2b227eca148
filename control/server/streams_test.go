package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/topology"
)

func TestExecCarriesStreamsAndStatus(t *testing.T) {
	c, _ := serve(t)
	up(t, c, pair("net"))
	var out, errs bytes.Buffer
	status, err := c.Exec(t.Context(), "net", "a", api.ExecRequest{
		Command: []string{"/bin/sh", "-c", "cat; echo oops >&2; echo $COLOUR; exit 3"},
		Env:     []string{"COLOUR=green", "PATH=/bin:/usr/bin"},
		Stdin:   strings.NewReader(strings.Repeat("hello\n", 20000)), Stdout: &out, Stderr: &errs,
	})
	if err != nil || status != 3 {
		t.Fatalf("status %d, %v", status, err)
	}
	if want := strings.Repeat("hello\n", 20000) + "green\n"; out.String() != want || errs.String() != "oops\n" {
		t.Errorf("%d bytes of output, want %d; errors %q", out.Len(), len(want), errs.String())
	}
	status, err = c.Exec(t.Context(), "net", "a", api.ExecRequest{Command: []string{"/bin/sh", "-c", "kill -9 $$"}})
	if err != nil || status != 137 {
		t.Errorf("killed: status %d, %v", status, err)
	}
	// The command ends though its input is still open.
	in, w := io.Pipe()
	defer w.Close()
	if status, err = c.Exec(t.Context(), "net", "a",
		api.ExecRequest{Command: []string{"/bin/true"}, Stdin: in}); err != nil || status != 0 {
		t.Errorf("open input: status %d, %v", status, err)
	}
	_, err = c.Exec(t.Context(), "net", "a", api.ExecRequest{Command: []string{"/no/such/program"}})
	refused(t, err, 500, "/no/such/program")
	_, err = c.Exec(t.Context(), "net", "zz", api.ExecRequest{Command: []string{"true"}})
	refused(t, err, 404, "zz")
	_, err = c.Exec(t.Context(), "net", "a", api.ExecRequest{})
	refused(t, err, 422, "command")
}

func TestExecEndsWithItsClient(t *testing.T) {
	c, _ := serve(t)
	up(t, c, pair("net"))
	for name, in := range map[string]io.Reader{"no input": nil, "input that nobody reads": endless{}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			out := lines{found: make(chan string, 10)}
			done := make(chan error, 1)
			go func() {
				_, err := c.Exec(ctx, "net", "a", api.ExecRequest{
					Command: []string{"/bin/sh", "-c", "echo $$; exec sleep 1000"}, Stdin: in,
					Stdout: &out,
				})
				done <- err
			}()
			pid := <-out.found
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("exec: %v", err)
			}
			await(t, "the command to end", func() bool { return !alive(pid) })
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestExecHasATerminal(t *testing.T) {
	c, _ := serve(t)
	up(t, c, pair("net"))
	out := lines{found: make(chan string, 10)}
	in, keys := io.Pipe()
	resize := make(chan api.Size, 1)
	done := make(chan int, 1)
	go func() {
		status, err := c.Exec(t.Context(), "net", "a", api.ExecRequest{
			Command: []string{"/bin/sh", "-c",
				`stty -echo; tty >/dev/null && stty size; read x; stty size; exit 5`},
			Env: []string{"PATH=/bin:/usr/bin"}, TTY: true, Size: api.Size{Rows: 11, Cols: 22},
			Resize: resize,
			Stdin:  in, Stdout: &out,
		})
		if err != nil {
			t.Error(err)
		}
		done <- status
	}()
	if got := out.next(t); got != "11 22" {
		t.Errorf("size at first %q", got)
	}
	resize <- api.Size{Rows: 33, Cols: 44}
	// The size and the keys travel in order, but are two things to the terminal: ask until it has arrived.
	fmt.Fprintln(keys)
	if got := out.next(t); got != "33 44" && got != "11 22" {
		t.Errorf("size later %q", got)
	}
	if status := <-done; status != 5 {
		t.Errorf("status %d", status)
	}
}

func TestStreamsReportHowTheyEnd(t *testing.T) {
	c, _ := serve(t)
	top := pair("net")
	top.Nodes["off"] = topology.Node{}
	up(t, c, top)
	r, err := c.Logs(t.Context(), "net", "a", api.LogOptions{Tail: 7})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); string(text) != "tail 7\n" || err != nil {
		t.Errorf("logs %q, %v", text, err)
	}
	r.Close()
	if r, err = c.Logs(t.Context(), "net", "a", api.LogOptions{Tail: 99}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), "went away") {
		t.Errorf("broken logs: %v", err)
	}
	r.Close()
	_, err = c.Logs(t.Context(), "net", "off", api.LogOptions{})
	refused(t, err, 409, "does not run")

	ctx, cancel := context.WithCancel(t.Context())
	if r, err = c.Logs(ctx, "net", "a", api.LogOptions{Follow: true}); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if n, err := r.Read(buffer); err != nil || string(buffer[:n]) != "tail 0\n" {
		t.Errorf("the first lines of a followed log: %q, %v", buffer[:n], err)
	}
	cancel()
	r.Close()

	if r, err = c.Capture(t.Context(), "net", "a", "eth1",
		api.CaptureOptions{Filter: "tcp port 179", Snaplen: 64, Count: 5}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); string(text) != `eth1 "tcp port 179" 64 5` || err != nil {
		t.Errorf("capture %q, %v", text, err)
	}
	r.Close()
}
