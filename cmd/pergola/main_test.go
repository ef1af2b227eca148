package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

var (
	update = flag.Bool("update", false, "rewrite docs/cli and the expectations of scripts")
	manual = flag.String("man", "", "leave the manual pages in this directory")
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pergola": main})
}

// TestScripts runs the stories of testdata/script: all that needs no server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			// No test may find a server of the machine it runs on.
			e.Setenv("PERGOLA_SOCKET", filepath.Join(e.WorkDir, "pergola.sock"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": statusIs},
	})
}

// statusIs runs a command that must end with a status: status 2 pergola up --nonsense.
func statusIs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("status is %s, want %s", got, args[0])
	}
}

// commands gives every command that a user can run or ask about.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

func quietRoot() *cobra.Command {
	return newRoot(&app{Terminal: ui.New(strings.NewReader(""), io.Discard, io.Discard)})
}

func TestEveryCommandHasASummaryAndATrueExample(t *testing.T) {
	root := quietRoot()
	for _, c := range commands(root) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 90 {
			t.Errorf("%s: summary is %q", c.CommandPath(), c.Short)
		}
		if c.Example == "" {
			t.Errorf("%s: has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			tryExample(t, c, strings.TrimSpace(line))
		}
	}
}

// tryExample checks that an example names commands and flags that exist and has as many arguments as they take.
func tryExample(t *testing.T, c *cobra.Command, line string) {
	t.Helper()
	_, line, found := strings.Cut(line, "pergola ")
	if !found {
		t.Errorf("%s: example %q runs no pergola", c.CommandPath(), line)
		return
	}
	for _, end := range []string{" #", " |", " >", " &&"} {
		line, _, _ = strings.Cut(line, end)
	}
	root := quietRoot()
	sub, args, err := root.Find(words(line))
	if err != nil || sub == root {
		t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
		return
	}
	if err := sub.ParseFlags(args); err != nil {
		t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
	}
	if err := sub.ValidateArgs(sub.Flags().Args()); err != nil {
		t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
	}
}

// words splits a line as a shell does: what stands between single quotes is one.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 0 {
			all = append(all, strings.Fields(part)...)
		} else {
			all = append(all, part)
		}
	}
	return all
}

// TestManualPages makes a page of each command, in the directory of -man for `make man`.
func TestManualPages(t *testing.T) {
	root := quietRoot()
	root.DisableAutoGenTag = true
	dir := *manual
	if dir == "" {
		dir = t.TempDir()
	}
	header := &doc.GenManHeader{Section: "1", Source: "Pergola", Manual: "Pergola"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands(root) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Errorf("%s: %v", c.CommandPath(), err)
		} else if !bytes.Contains(page, []byte(".SH SYNOPSIS")) {
			t.Errorf("%s: its page has no synopsis", c.CommandPath())
		}
	}
}

// TestReferenceIsCurrent compares docs/cli with the commands; `go generate` writes it anew.
func TestReferenceIsCurrent(t *testing.T) {
	const reference = "../../docs/cli"
	t.Setenv("PERGOLA_SOCKET", "")
	root := quietRoot()
	root.DisableAutoGenTag = true
	dir := t.TempDir()
	if *update {
		if err := os.RemoveAll(reference); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(reference, 0o755); err != nil {
			t.Fatal(err)
		}
		dir = reference
	}
	if err := doc.GenMarkdownTree(root, dir); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		want, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(reference, filepath.Base(page)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/cli/%s is not current (%v): run go generate ./cmd/pergola",
				filepath.Base(page), err)
		}
	}
	if there, _ := filepath.Glob(filepath.Join(reference, "*.md")); len(there) != len(pages) {
		t.Errorf("docs/cli has %d pages for %d commands: run go generate ./cmd/pergola", len(there), len(pages))
	}
}

func TestQuickStartFileIsValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "<<'END'\n")
	text, _, found := strings.Cut(text, "END\n")
	if !found {
		t.Fatal("docs/quickstart.md has no file between <<'END' and END")
	}
	path := filepath.Join(t.TempDir(), "pergola.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	v, err := source.Validate(t.Context(), path, source.Options{})
	if err != nil || !v.Valid {
		t.Errorf("%v, %v", err, v.Errors)
	}
	src, err := source.Load(t.Context(), path, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := src.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range resolved.Links {
		for _, e := range l.Ends {
			if e.Shape.NeedsNetem() {
				t.Errorf("link %s needs netem, which not every kernel has", l.Name)
			}
		}
	}
}
