package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/lab/testkit"
)

// binaries is where TestMain has put i3 and i3d.
var binaries string

func TestMain(m *testing.M) { os.Exit(inMain(m)) }

func inMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "i3")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", dir, ".", "../i3d")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	binaries = dir
	return m.Run()
}

// TestStories plays testdata/*.txtar with the real programs, on addresses of 127.0.0.0/8. NET is the first three
// numbers of the addresses of one story; no other has the same.
func TestStories(t *testing.T) {
	first := rand.IntN(200)
	stories, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("there are %d stories: %v", len(stories), err)
	}
	next := make(chan int, len(stories))
	for i := range stories {
		next <- i
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"eventually": eventually,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", binaries+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("NET", "127."+strconv.Itoa(20+first)+"."+strconv.Itoa(<-next))
			return nil
		},
	})
}

// eventually runs a program until it succeeds, for a minute at most.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually PROGRAM [ARG...]")
	}
	err := testkit.Poll(func() error { return ts.Exec(args[0], args[1:]...) }, time.Minute)
	if err != nil {
		ts.Fatalf("%s still fails: %v", args[0], err)
	}
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	t.Setenv("I3_VIA", "")
	for _, args := range [][]string{
		{"send"}, {"send", "a", "b"}, {"send", "a", "b", "--hops", "0", "--via", "127.0.0.1"}, {"verb"}, {"--flag"},
		{"send", ",", "b"}, {"send", "a,b,c,d,e,f,g,h,i", "x"}, {"recv", "a", "--local", "there"}, {"insert", "a"},
		{"insert", "a,b", "--to", "c"}, {"remove", "a"}, {"lookup"}, {"ring", "a"}, {"id", "a", "--secret"},
		{"send", "a", "b", "--copies", "2000"}, {"send", "a", "b", "--count", "-1"}, {"recv", "a", "--lifetime", "1ms"},
	} {
		discard := &discard{}
		if got := run(t.Context(), args, streams{in: nil, out: discard, err: discard}); got != exitUsage {
			t.Errorf("i3 %v ends with %d, want %d: %s", args, got, exitUsage, discard.text)
		}
	}
}

func TestManualHasOnlyCommandsThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/i3.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^i3 (.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(lines) < 5 {
		t.Fatalf("docs/i3.md has %d lines with i3", len(lines))
	}
	for _, line := range lines {
		words, _, _ := strings.Cut(line[1], " #")
		c, rest, err := newRoot(&app{}).Find(strings.Fields(words))
		if err == nil && !c.HasParent() {
			err = errors.New("there is no such command")
		}
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line[0], err)
		}
	}
}

type discard struct{ text []byte }

func (d *discard) Write(b []byte) (int, error) {
	d.text = append(d.text, b...)
	return len(b), nil
}
