package ui

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	ptys "github.com/containerd/console"
)

// onTerminal gives a Terminal that a person of the given width looks at, and what the person sees.
func onTerminal(t *testing.T, width uint16) (*Terminal, *bufio.Reader, *os.File) {
	t.Helper()
	person, name, err := ptys.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := person.Resize(ptys.WinSize{Width: width, Height: 24}); err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	return New(program, program, program), bufio.NewReader(person), program
}

const wipe = "\r\x1b[K"

func TestProgressOnATerminalIsOneLineThatGoesAway(t *testing.T) {
	term, screen, program := onTerminal(t, 60)
	p := term.Progress()
	p.Step("bringing lab up", 1, 2)
	p.Step("bringing lab up", 2, 2)
	p.Note("a note that stays")
	p.Close()
	fmt.Fprintln(program, "the end")
	var lines []string
	for len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "the end") {
		line, err := screen.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	if len(lines) != 2 || !strings.HasSuffix(lines[0], wipe+"a note that stays") ||
		!strings.HasSuffix(lines[1], wipe+"the end") {
		t.Errorf("the screen got %q", lines)
	}
	if !strings.Contains(lines[0], "bringing lab up 1/2") || !strings.Contains(lines[1], "bringing lab up 2/2") {
		t.Errorf("progress was not shown: %q", lines)
	}
}

func TestProgressFitsANarrowTerminal(t *testing.T) {
	term, screen, program := onTerminal(t, 20)
	term.SetColor(false)
	p := term.Progress()
	p.Step("bringing a network with a long name up", 1, 2)
	p.Close()
	fmt.Fprintln(program)
	line, err := screen.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for piece := range strings.SplitSeq(line, wipe) {
		if n := len([]rune(strings.TrimSpace(piece))); n > 19 {
			t.Errorf("%q is %d columns wide", piece, n)
		}
	}
}

func TestTableOnANarrowTerminalWrapsItsCells(t *testing.T) {
	term, screen, _ := onTerminal(t, 30)
	term.SetColor(false)
	b := &Table{Columns: []string{"CHECK", "DETAIL"}}
	b.Row("ping", "a long explanation of what happened")
	term.Table(b)
	line, err := screen.ReadString('\n')
	for err == nil && !strings.Contains(line, "happened") {
		if n := len([]rune(strings.TrimRight(line, "\r\n"))); n > 30 {
			t.Errorf("%q is %d columns wide", line, n)
		}
		line, err = screen.ReadString('\n')
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestColourIsForTerminalsAlone(t *testing.T) {
	term, _, _ := onTerminal(t, 80)
	if got := term.Paint(term.Styles.Bad, "x"); got == "x" {
		t.Error("a terminal gets no colour")
	}
	term.SetColor(false)
	if got := term.Paint(term.Styles.Bad, "x"); got != "x" {
		t.Errorf("--no-color gives %q", got)
	}
	pipe, _, _ := piped()
	if got := pipe.Paint(pipe.Styles.Bad.Bold(true), "x"); got != "x" {
		t.Errorf("a pipe gets %q", got)
	}
}
