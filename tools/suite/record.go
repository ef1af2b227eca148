package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shown is the number of slow tests and packages that a summary lists.
const shown = 20

// timing is the time that a test or, without a test, a package took.
type timing struct {
	Package, Test string
	Seconds       float64
}

// record is the result of one suite.
type record struct {
	Suite                   string
	Passed, Failed, Skipped int
	Seconds                 float64
	Tests, Packages         []timing // the slowest ones
}

func (rec record) print(to io.Writer, skips []string) {
	verdict := "ok  "
	if rec.Failed > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(to, "%s  %-8s %4d passed, %d failed, %d skipped, %.1f s\n",
		verdict, rec.Suite, rec.Passed, rec.Failed, rec.Skipped, rec.Seconds)
	for _, reason := range skips {
		fmt.Fprintln(to, "      skipped", reason)
	}
}

func (rec record) write(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, rec.Suite+".record"), append(text, '\n'), 0o644)
}

// addUp prints the sum of all records in a directory and reports whether all tests passed.
func addUp(to io.Writer, dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.record"))
	if err != nil {
		return false, err
	}
	var sum record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		var rec record
		if err := json.Unmarshal(text, &rec); err != nil {
			return false, fmt.Errorf("parse %s: %w", file, err)
		}
		sum.Passed += rec.Passed
		sum.Failed += rec.Failed
		sum.Skipped += rec.Skipped
		for _, t := range rec.Tests {
			sum.Tests = append(sum.Tests, timing{Package: rec.Suite + " " + short(t.Package), Test: t.Test,
				Seconds: t.Seconds})
		}
		for _, t := range rec.Packages {
			sum.Packages = append(sum.Packages, timing{Package: rec.Suite + " " + short(t.Package),
				Seconds: t.Seconds})
		}
	}
	list(to, "slowest tests", slowest(sum.Tests))
	list(to, "slowest packages", slowest(sum.Packages))
	fmt.Fprintf(to, "%d passed, %d failed, %d skipped\n", sum.Passed, sum.Failed, sum.Skipped)
	return sum.Failed == 0 && sum.Passed > 0, nil
}

func list(to io.Writer, title string, all []timing) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(to, "%s, in seconds:\n", title)
	for _, t := range all {
		fmt.Fprintf(to, "%8.1f  %s\n", t.Seconds, strings.TrimSpace(t.Package+" "+t.Test))
	}
}

// leaves drops tests that have subtests: their time is that of the subtests.
func leaves(tests []timing) []timing {
	type key struct{ pkg, test string }
	parents := map[key]bool{}
	for _, t := range tests {
		for i, c := range t.Test {
			if c == '/' {
				parents[key{t.Package, t.Test[:i]}] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(tests), func(t timing) bool { return parents[key{t.Package, t.Test}] })
}

// slowest gives the first tests of a list, the slowest one first.
func slowest(all []timing) []timing {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b timing) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return all[:min(len(all), shown)]
}

// short drops the module's path from a package's.
func short(pkg string) string {
	if words := strings.SplitN(pkg, "/", 4); len(words) == 4 {
		return words[3]
	}
	return pkg
}
