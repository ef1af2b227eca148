package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// results gathers events. Tests and subtests with an outcome are counted, packages are not.
type results struct {
	passed, failed, skipped int
	failures, skips         []string
	output                  map[[2]string]*bytes.Buffer // by package and test
	failedIn                map[string]bool             // packages with a failed test
	tests, packages         []timing
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
			r.failures = append(r.failures, lines.Text()+"\n") // not JSON: a diagnostic of the go command
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
		r.time(e)
		delete(r.output, key)
	case "skip":
		if e.Test != "" {
			r.skipped++
			r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(out.String())))
		}
		delete(r.output, key)
	case "build-fail":
		r.failures = append(r.failures, out.String())
	case "fail":
		// A package fails with its tests. It is counted only when no test of it failed: it did not compile, or
		// ended in the middle of a test, which has the cause in its output.
		if e.Test != "" || !r.failedIn[e.Package] {
			r.failed++
			r.failures = append(r.failures, fmt.Sprintf("=== %s %s\n%s", e.Package, e.Test, out.String()))
		}
		delete(r.output, key)
		if e.Test == "" {
			r.failures = append(r.failures, r.unended(e.Package)...)
		}
		r.failedIn[e.Package] = true
		r.time(e)
	}
}

// unended takes the output of tests of a package that has ended, and they have not.
func (r *results) unended(of string) (all []string) {
	for key, out := range r.output {
		if key[0] == of && key[1] != "" && out.Len() > 0 {
			all = append(all, fmt.Sprintf("=== %s %s\n%s", key[0], key[1], out.String()))
			delete(r.output, key)
		}
	}
	slices.Sort(all)
	return all
}

func (r *results) time(e event) {
	t := timing{Package: e.Package, Test: e.Test, Seconds: e.Elapsed}
	if e.Test == "" {
		r.packages = append(r.packages, t)
	} else {
		r.tests = append(r.tests, t)
	}
}

// reason is the line that t.Skip printed: the last one before the verdict.
func reason(output string) string {
	var last string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			last = line
		}
	}
	return last
}

// record gives the counts and the slowest tests of the suite.
func (r *results) record(name string, took time.Duration) record {
	return record{
		Suite: name, Passed: r.passed, Failed: r.failed, Skipped: r.skipped, Seconds: took.Seconds(),
		Tests: slowest(leaves(r.tests)), Packages: slowest(r.packages),
	}
}
