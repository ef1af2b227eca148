package sliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// sh runs a shell command by Exec and gives what it prints, with the exit code when that is not 0.
func sh(t testing.TB, r *Runtime, id ID, command string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := r.Exec(t.Context(), id, ExecRequest{
		Args: []string{"sh", "-c", command}, Stdout: &out, Stderr: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		fmt.Fprintf(&out, "exit %d", code)
	}
	return strings.TrimSpace(out.String())
}

func TestExec(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	run := func(req ExecRequest) (string, string, int) {
		t.Helper()
		var out, errs bytes.Buffer
		req.Stdout, req.Stderr = &out, &errs
		code, err := r.Exec(t.Context(), id, req)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), code
	}
	if out, errs, code := run(ExecRequest{
		Args: []string{"sh", "-c", "cat; pwd; echo $A >&2; id -un; exit 7"}, Stdin: strings.NewReader("in\n"),
		Dir: "/run", Env: map[string]string{"A": "b"}, User: "frr",
	}); out != "in\n/run\nfrr\n" || errs != "b\n" || code != 7 {
		t.Errorf("got %q, %q, %d", out, errs, code)
	}
	if _, _, code := run(ExecRequest{Args: []string{"sh", "-c", "kill -9 $$"}}); code != 137 {
		t.Errorf("killed command: exit code %d", code)
	}
	cgroup, _, _ := run(ExecRequest{Args: []string{"cat", "/proc/self/cgroup"}})
	if !strings.Contains(cgroup, "/denver") {
		t.Errorf("not in the sliver's cgroup: %s", cgroup)
	}
	out, _, _ := run(ExecRequest{Args: []string{"grep", "Seccomp:", "/proc/self/status"}})
	if !strings.Contains(out, "2") {
		t.Errorf("no seccomp filter: %s", out)
	}
	start := time.Now()
	run(ExecRequest{Args: []string{"sh", "-c", "sleep 1000 & echo"}})
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("waited %v for a background process", d)
	}
	for name, want := range map[string]int{"nonsense": 127, "/nonsense": 127, "/etc": 126, "/etc/hostname": 126} {
		var said bytes.Buffer // by who runs the command: the error says it already
		code, err := r.Exec(t.Context(), id, ExecRequest{Args: []string{name}, Stdout: &said, Stderr: &said})
		if code != want || err == nil || !strings.Contains(err.Error(), name) || said.Len() > 0 {
			t.Errorf("missing command: %d, %v, %q", code, err, said.String())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	sleep := ExecRequest{Args: []string{"sleep", "999"}}
	if _, err := r.Exec(ctx, id, sleep); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended context: %v", err)
	}
	if out := sh(t, r, id, "ps ax"); strings.Contains(out, "sleep 999") {
		t.Errorf("command outlived its context:\n%s", out)
	}
}

func TestExecTerminal(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	var out bytes.Buffer
	sizes := make(chan [2]uint16, 1)
	sizes <- [2]uint16{132, 50}
	close(sizes)
	code, err := r.Exec(t.Context(), id, ExecRequest{
		Args: []string{
			"sh", "-c", "until stty size | grep '50 132'; do :; done; read x; echo got $x; tty; exit 3",
		},
		TTY: true, Stdin: strings.NewReader("hello\n"), Stdout: &out, Resize: sizes,
	})
	if err != nil || code != 3 {
		t.Fatalf("%d, %v: %s", code, err, out.String())
	}
	for _, want := range []string{"50 132", "got hello", "/dev/pts/"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	if _, err := r.Exec(t.Context(), id, ExecRequest{Args: []string{"nonsense"}, TTY: true}); err == nil {
		t.Error("missing command on a terminal: no error")
	}
}

// running starts a command that runs until the test ends, and returns when it runs.
func running(t *testing.T, r *Runtime, id ID) (ended chan struct{}) {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		out := writerFunc(func(p []byte) (int, error) { close(begun); return len(p), nil })
		request := ExecRequest{Args: []string{"sh", "-c", "echo; exec sleep 1000"}, Stdout: out}
		if _, err := r.Exec(t.Context(), id, request); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}()
	select {
	case <-begun:
	case <-time.After(30 * time.Second):
		t.Fatal("the command does not begin")
	}
	return ended
}

func TestDeleteEndsCommands(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	ended := running(t, r, id)
	if err := r.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestManyCommandsBlockNobody(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	for range parallel() + 1 {
		running(t, r, id)
	}
	up(t, r, spec("chicago"))
}

// With cgroup version 1, the thread that forks a command is in the sliver's group for a moment: a pause must not meet
// it there.
func TestPauseDoesNotFreezeTheServer(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	running(t, r, id) // it may run before the thread that forked it is on
	testkit.Eventually(t, func() error {
		pids, err := r.groups.processes(r.groupOf(id))
		if err == nil && slices.Contains(pids, os.Getpid()) {
			err = fmt.Errorf("of %v is the server", pids)
		}
		return err
	}, 5*time.Second, "the server to leave the sliver's group while a command runs")
	done := make(chan struct{})
	var commands sync.WaitGroup
	for range 4 {
		commands.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := r.Exec(t.Context(), id, ExecRequest{Args: []string{"true"}}); err != nil &&
					!errors.Is(err, errPaused) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 30 {
		if err := r.Pause(id); err != nil {
			t.Error(err)
		}
		if pids, err := r.groups.processes(r.groupOf(id)); err != nil || slices.Contains(pids, os.Getpid()) {
			t.Errorf("frozen with the sliver: %v, %v", pids, err)
		}
		up(t, r, spec("chicago")) // nothing else waits for who is paused
		if err := r.Delete(t.Context(), ID{testSlice, "chicago"}); err != nil {
			t.Error(err)
		}
		if err := r.Resume(id); err != nil {
			t.Error(err)
		}
	}
	close(done)
	commands.Wait()
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
