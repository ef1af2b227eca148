package testkit

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
)

// Child starts the test binary again, with these variables in its environment (NAME=value) beside its own: TestMain
// acts on them. lines reads its standard output and its errors. The child is killed when the test ends, or by Kill.
func Child(t testing.TB, env ...string) (child *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	child = exec.Command(os.Args[0]) //nolint:noctx // killed by the test
	child.Env = append(os.Environ(), env...)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = child.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(child) })
	return child, bufio.NewScanner(out)
}

// Kill kills a process, if it still runs, and waits for its end.
func Kill(child *exec.Cmd) {
	_ = child.Process.Kill()
	_ = child.Wait()
}
