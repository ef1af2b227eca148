// Command suite runs one suite of tests and says in one line how it went; of failed tests it prints everything.
//
//	suite [-log FILE] NAME COMMAND ARG...
//
// COMMAND prints what `go test -json` prints. A suite that ran no test has failed. With -log, a line "passed failed skipped" is
// appended to FILE; `suite -sum FILE` adds such lines up and prints "N passed, N failed, N skipped".
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	log := flag.String("log", "", "append the counts to this `file`")
	sum := flag.String("sum", "", "add up the counts in this `file` and print them")
	flag.Parse()
	// An interrupt ends the suite's processes; what was found until then is still said.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var ok bool
	var err error
	switch {
	case *sum != "":
		ok, err = addUp(*sum)
	case flag.NArg() < 2:
		err = errors.New("usage: suite [-log FILE] NAME COMMAND ARG... | suite -sum FILE")
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

// run carries the suite out and reports whether it passed.
func run(ctx context.Context, name string, command []string, log string) (bool, error) {
	started := time.Now()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	r := newResults()
	if err := r.read(stdout); err != nil {
		return false, err
	}
	failed := cmd.Wait() != nil
	for _, text := range r.failures {
		fmt.Print(text)
	}
	if failed && r.failed == 0 {
		fmt.Printf("%s: %s failed\n", name, command[0])
		r.failed++
	}
	if r.passed+r.failed == 0 {
		fmt.Printf("%s: no test ran\n", name)
		r.failed++
	}
	verdict := "ok  "
	if r.failed > 0 {
		verdict = "FAIL"
	}
	fmt.Printf("%s  %-8s %4d passed, %d failed, %d skipped, %.1f s\n", verdict, name, r.passed, r.failed, r.skipped, time.Since(started).Seconds())
	for _, reason := range r.skips {
		fmt.Println("      skipped", reason)
	}
	return r.failed == 0, r.append(log)
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// results gathers events. Only top-level tests and subtests with an outcome count, packages do not.
type results struct {
	passed, failed, skipped int
	failures, skips         []string
	output                  map[[2]string]*bytes.Buffer // by package and test
	failedIn                map[string]bool             // packages with a failed test
}

func newResults() *results {
	return &results{output: map[[2]string]*bytes.Buffer{}, failedIn: map[string]bool{}}
}

func (r *results) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.failures = append(r.failures, lines.Text()+"\n") // not JSON: the go command itself complains
			continue
		}
		r.add(e)
	}
	return lines.Err()
}

func (r *results) add(e event) {
	if e.Package == "" {
		e.Package = e.ImportPath // output of the compiler
	}
	key := [2]string{e.Package, e.Test}
	out := r.output[key]
	if out == nil {
		out = new(bytes.Buffer)
		r.output[key] = out
	}
	switch e.Action {
	case "output", "build-output":
		out.WriteString(e.Output)
	case "pass":
		if e.Test != "" {
			r.passed++
		}
		delete(r.output, key)
	case "skip":
		if e.Test != "" {
			r.skipped++
			r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(out.String())))
		}
	case "build-fail":
		r.failures = append(r.failures, out.String())
	case "fail":
		// A package fails with its tests, and is counted only when it failed without one: it did not compile, say.
		if e.Test != "" || !r.failedIn[e.Package] {
			r.failed++
			r.failures = append(r.failures, fmt.Sprintf("=== %s %s\n%s", e.Package, e.Test, out.String()))
		}
		r.failedIn[e.Package] = true
	}
}

// reason is the line that t.Skip printed: the last but the verdict.
func reason(output string) string {
	var last string
	for line := range bytes.Lines([]byte(output)) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("===")) {
			last = string(line)
		}
	}
	return last
}

func (r *results) append(log string) error {
	if log == "" {
		return nil
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.passed, r.failed, r.skipped)
	return errors.Join(err, f.Close())
}

func addUp(log string) (bool, error) {
	f, err := os.Open(log)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	var passed, failed, skipped int
	for {
		var p, fl, s int
		_, err := fmt.Fscanln(f, &p, &fl, &s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", log, err)
		}
		passed, failed, skipped = passed+p, failed+fl, skipped+s
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && passed > 0, nil
}
