// Command suite runs one suite of tests and reports the result in one line; of failed tests it prints the whole output.
//
//	suite [-log DIR] NAME COMMAND ARG...
//
// COMMAND prints what `go test -json` prints. A suite that ran no test has failed. Everything is printed at the end in
// one write, so that suites can run side by side.
//
// With -log, DIR/NAME.json has the events and DIR/NAME.record the result. `suite -sum DIR` adds all records up: it
// prints the slowest tests and packages and, as its last line, "N passed, N failed, N skipped".
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	log := flag.String("log", "", "keep events and the result in this `directory`")
	sum := flag.String("sum", "", "add up the results in this `directory` and print them")
	flag.Parse()
	// An interrupt ends the suite's processes; the results until then are still printed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var ok bool
	var err error
	switch {
	case *sum != "":
		ok, err = addUp(os.Stdout, *sum)
	case flag.NArg() < 2:
		err = errors.New("usage: suite [-log DIR] NAME COMMAND ARG... | suite -sum DIR")
	default:
		ok, err = run(ctx, flag.Arg(0), flag.Args()[1:], *log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// run executes the suite and reports whether it passed.
func run(ctx context.Context, name string, command []string, log string) (bool, error) {
	started := time.Now()
	var diagnostics bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = &diagnostics
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	var events io.Reader = stdout
	if log != "" {
		if err := os.MkdirAll(log, 0o755); err != nil {
			return false, err
		}
		f, err := os.Create(filepath.Join(log, name+".json"))
		if err != nil {
			return false, err
		}
		defer func() { _ = f.Close() }()
		events = io.TeeReader(stdout, f)
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	r := newResults()
	if err := r.read(events); err != nil {
		return false, err
	}
	failed := cmd.Wait() != nil
	rec := r.record(name, time.Since(started))
	var out bytes.Buffer
	out.Write(diagnostics.Bytes())
	for _, text := range r.failures {
		out.WriteString(text)
	}
	if failed && rec.Failed == 0 {
		fmt.Fprintf(&out, "%s: %s failed\n", name, command[0])
		rec.Failed++
	}
	if rec.Passed+rec.Failed == 0 {
		fmt.Fprintf(&out, "%s: no test ran\n", name)
		rec.Failed++
	}
	rec.print(&out, r.skips)
	_, err = os.Stdout.Write(out.Bytes())
	return rec.Failed == 0, errors.Join(err, rec.write(log))
}
