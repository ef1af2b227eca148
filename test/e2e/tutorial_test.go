package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// TestTutorialOfProgramsSaysWhatIsSo types what docs/tutorial-programs.md tells the reader to type: the fenced blocks
// marked console, in order, each by a shell in the directory where the last one was. The lines of a block marked text
// must be in what the block before it printed; with "text about", numbers and times may be others. A command with the
// comment "leave it running" runs on, and what it prints counts, too.
func TestTutorialOfProgramsSaysWhatIsSo(t *testing.T) {
	testkit.Root(t)
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no clang, which compiles packet programs")
		}
		t.Skip("no clang, which compiles packet programs")
	}
	root := testkit.ModuleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "tutorial-programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, pergola(t))
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, server: s, dir: t.TempDir()}
	steps := 0
	for _, b := range blocks(string(page)) {
		if b.commands == "" {
			continue
		}
		steps++
		r.follow(strings.ReplaceAll(b.commands, "cp PERGOLA/", "cp "+root+"/"), b)
	}
	if steps < 5 {
		t.Errorf("the page has %d blocks to type", steps)
	}
}

// block is what the reader types, and what the page says is shown then.
type block struct {
	commands   string
	shown      []string
	about      bool
	start, end int // of what is shown, in the page
}

func blocks(page string) (all []block) {
	fence := regexp.MustCompile("(?ms)^```(console|text about|text)\n(.*?)^```$")
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		kind, text := page[m[2]:m[3]], page[m[4]:m[5]]
		if kind == "console" {
			all = append(all, block{commands: text})
			continue
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		last.shown, last.about = strings.Split(strings.TrimSpace(text), "\n"), kind == "text about"
		last.start, last.end = m[4], m[5]
	}
	return all
}

// reader follows a page.
type reader struct {
	*testing.T
	*server
	dir string
}

var runsOn = regexp.MustCompile(`(?m)^(.*\S) +# leave it running$\n`)

func (r *reader) follow(commands string, b block) {
	r.Helper()
	background := filepath.Join(r.TempDir(), "background")
	for _, m := range runsOn.FindAllStringSubmatch(commands, -1) {
		r.leave(m[1], background)
	}
	rest := runsOn.ReplaceAllString(commands, "")
	if rest == commands {
		r.compare(commands, b, r.mustRun(commands))
		return
	}
	testkit.Eventually(r, func() error {
		out := r.mustRun(rest)
		later, err := os.ReadFile(background)
		if err != nil {
			return err
		}
		return b.missing(out + string(later))
	}, 20*time.Second, "what the page shows after:\n"+commands)
}

func (r *reader) compare(commands string, b block, out string) {
	r.Helper()
	if err := b.missing(out); err != nil {
		r.Fatalf("%v, of:\n%sIt printed:\n%s", err, commands, out)
	}
}

var (
	numbers = regexp.MustCompile(`\d+`)
	times   = regexp.MustCompile(`(\d+ min )?\d+(\.\d+)? (us|ms|s)\b`)
)

// missing is an error where a line that the page shows was not printed.
func (b block) missing(out string) error {
	plain := func(line string) string {
		line = strings.Join(strings.Fields(line), " ")
		if b.about {
			line = numbers.ReplaceAllString(times.ReplaceAllString(line, "T"), "N")
		}
		return line
	}
	printed := "\n"
	for line := range strings.Lines(out) {
		printed += plain(line) + "\n"
	}
	for _, line := range b.shown {
		if !strings.Contains(printed, plain(line)) {
			return fmt.Errorf("the page shows %q, which is not printed", line)
		}
	}
	return nil
}

// shell is the reader's: root needs no sudo.
func (r *reader) shell(commands string) *exec.Cmd {
	// The name of a variable, so that the directory is told by the shell itself.
	const prelude = "set -e\nsudo() { \"$@\"; }\ntrap 'pwd >\"$WHERE\"' EXIT\n"
	cmd := exec.Command("bash", "-c", prelude+commands)
	cmd.Dir = r.dir
	if where, err := os.ReadFile(r.where()); err == nil {
		cmd.Dir = strings.TrimSpace(string(where))
	}
	own := r.command()
	cmd.Env = append(own.Environ(), "WHERE="+r.where(), "PATH="+filepath.Dir(r.binary)+":"+os.Getenv("PATH"))
	return cmd
}

func (r *reader) where() string { return filepath.Join(r.dir, ".where") }

func (r *reader) mustRun(commands string) string {
	r.Helper()
	out, err := r.shell(commands).CombinedOutput()
	if err != nil {
		r.Fatalf("%v, of:\n%sIt printed:\n%s", err, commands, out)
	}
	return string(out)
}

// leave starts a command and ends it with the test.
func (r *reader) leave(command, output string) {
	r.Helper()
	f, err := os.Create(output)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd := r.shell("exec " + strings.TrimPrefix(command, "sudo "))
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func TestThePageIsReadByItsFences(t *testing.T) {
	all := blocks("```\nno\n```\n```console\na\nb\n```\nwords\n```text about\nx 1\n```\n```console\nc\n```\n")
	if len(all) != 2 || all[0].commands != "a\nb\n" || all[1].shown != nil {
		t.Fatalf("%+v", all)
	}
	if err := all[0].missing("y\nx  22\n"); err != nil {
		t.Error(err)
	}
	all[0].about = false
	if err := all[0].missing("x 22\n"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("x 1")) {
		t.Errorf("another number: %v", err)
	}
}
