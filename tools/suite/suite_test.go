package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const events = `{"Action":"run","Package":"example.org/a/b/c","Test":"TestStories"}
{"Action":"run","Package":"example.org/a/b/c","Test":"TestStories/quick"}
{"Action":"pass","Package":"example.org/a/b/c","Test":"TestStories/quick","Elapsed":1.5}
{"Action":"pass","Package":"example.org/a/b/c","Test":"TestStories","Elapsed":1.5}
{"Action":"output","Package":"example.org/a/b/c","Test":"TestSkipped","Output":"    needs a feature\n"}
{"Action":"output","Package":"example.org/a/b/c","Test":"TestSkipped","Output":"--- SKIP: TestSkipped\n"}
{"Action":"skip","Package":"example.org/a/b/c","Test":"TestSkipped","Elapsed":0}
{"Action":"output","Package":"example.org/a/b/d","Test":"TestBad","Output":"cause\n"}
{"Action":"fail","Package":"example.org/a/b/d","Test":"TestBad","Elapsed":20}
{"Action":"fail","Package":"example.org/a/b/d","Elapsed":21}
{"Action":"pass","Package":"example.org/a/b/c","Elapsed":2}
no JSON
`

func TestResultsCountTestsAndNotPackages(t *testing.T) {
	r := newResults()
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	rec := r.record("net", time.Minute)
	if rec.Passed != 2 || rec.Failed != 1 || rec.Skipped != 1 {
		t.Errorf("%d passed, %d failed, %d skipped; want 2, 1, 1", rec.Passed, rec.Failed, rec.Skipped)
	}
	if text := strings.Join(r.failures, ""); !strings.Contains(text, "cause\n") ||
		!strings.Contains(text, "no JSON\n") {
		t.Errorf("failures are printed as %q", text)
	}
	if len(r.skips) != 1 || !strings.HasSuffix(r.skips[0], ": needs a feature") {
		t.Errorf("skips are printed as %q", r.skips)
	}
}

// What ends a package ends the test that runs, which has no outcome of its own.
func TestAPanicIsPrinted(t *testing.T) {
	r := newResults()
	if err := r.read(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: oh\n"}
{"Action":"output","Package":"p","Output":"FAIL p\n"}
{"Action":"fail","Package":"p"}
`)); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(r.failures, "")
	if !strings.Contains(text, "panic: oh") || strings.Contains(text, "fine") || r.failed != 1 {
		t.Errorf("%d failed, and printed is %q", r.failed, text)
	}
}

func TestSumOfSuitesListsTheSlowest(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"net", "e2e"} {
		r := newResults()
		if err := r.read(strings.NewReader(events)); err != nil {
			t.Fatal(err)
		}
		if err := r.record(name, time.Minute).write(dir); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	ok, err := addUp(&out, dir)
	if err != nil || ok {
		t.Errorf("the sum of failed suites is %v, %v; want a failure", ok, err)
	}
	want := `slowest tests, in seconds:
    20.0  e2e d TestBad
    20.0  net d TestBad
     1.5  e2e c TestStories/quick
     1.5  net c TestStories/quick
slowest packages, in seconds:
    21.0  e2e d
    21.0  net d
     2.0  e2e c
     2.0  net c
4 passed, 2 failed, 2 skipped
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestSumOfNothingFails(t *testing.T) {
	var out strings.Builder
	if ok, err := addUp(&out, t.TempDir()); ok || err != nil {
		t.Errorf("got %v, %v; want a failure without an error", ok, err)
	}
}

func TestSuiteWithoutTestsFails(t *testing.T) {
	dir := t.TempDir()
	for name, command := range map[string][]string{"none": {"true"}, "broken": {"false"}} {
		if ok, err := run(t.Context(), name, command, dir); ok || err != nil {
			t.Errorf("%s: got %v, %v; want a failure without an error", name, ok, err)
		}
		if _, err := os.Stat(filepath.Join(dir, name+".record")); err != nil {
			t.Error(err)
		}
	}
}
