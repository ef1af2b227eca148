// Package ui is how Pergola talks to a person or to a program that reads its output: tables, progress, errors,
// units. All differences between output for people and output for programs are made here.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"golang.org/x/term"
)

// Terminal is where one command reads and writes. Results go to Out, everything said about the work to Err, so that
// a pipe carries results alone.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer

	JSON    bool // results as one JSON document
	Quiet   bool // nothing but results and errors
	Verbose bool // every step, and the cause of errors in full

	in, out, err *os.File // nil where the stream is no terminal
	color        bool
	lost         error // the first
	Styles       Styles
}

// Styles are the few ways in which text stands out. They render nothing where colour is off. Only the sixteen
// colours that every terminal has are used: the user's own palette decides.
type Styles struct {
	Bold, Faint, Good, Warn, Bad, Mark lipgloss.Style
}

// New gives the terminal of a command. A stream that is no terminal is written plainly.
func New(in io.Reader, out, err io.Writer) *Terminal {
	t := &Terminal{In: in, Out: out, Err: err, in: tty(in), out: tty(out), err: tty(err)}
	t.SetColor(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
	return t
}

func tty(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// SetColor switches colour on, where there is a terminal to show it, or off.
func (t *Terminal) SetColor(on bool) {
	t.color = on
	render := lipgloss.NewRenderer(io.Discard, termenv.WithTTY(false))
	render.SetColorProfile(termenv.Ascii)
	if on && (t.out != nil || t.err != nil) {
		render.SetColorProfile(termenv.ANSI)
	}
	style := render.NewStyle
	t.Styles = Styles{
		Bold:  style().Bold(on),
		Faint: style().Faint(on),
		Good:  style().Foreground(lipgloss.Color("2")),
		Warn:  style().Foreground(lipgloss.Color("3")),
		Bad:   style().Foreground(lipgloss.Color("1")),
		Mark:  style().Foreground(lipgloss.Color("6")),
	}
}

// Color reports whether results may carry colour.
func (t *Terminal) Color() bool { return t.color && t.out != nil }

// IsTTY reports whether results are read by a person.
func (t *Terminal) IsTTY() bool { return t.out != nil }

// Stdin gives the terminal that a person types on, or nil.
func (t *Terminal) Stdin() *os.File { return t.in }

// Stdout gives the terminal that shows the results, or nil.
func (t *Terminal) Stdout() *os.File { return t.out }

// Stderr gives the terminal that shows what is said about the work, or nil.
func (t *Terminal) Stderr() *os.File { return t.err }

// Width is the number of columns of the terminal that shows the results; 0 where there is none.
func (t *Terminal) Width() int { return width(t.out) }

func width(f *os.File) int {
	if f == nil {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Emit writes a result as an indented JSON document.
func (t *Terminal) Emit(v any) error {
	enc := json.NewEncoder(t.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// EmitLine writes one JSON document on one line: for streams.
func (t *Terminal) EmitLine(v any) error {
	enc := json.NewEncoder(t.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Say writes a line about the work, unless the user asked for quiet.
func (t *Terminal) Say(format string, args ...any) {
	if !t.Quiet {
		fmt.Fprintf(t.Err, format+"\n", args...)
	}
}

// Detail writes a line about the work if the user asked for every step.
func (t *Terminal) Detail(format string, args ...any) {
	if t.Verbose {
		fmt.Fprintln(t.Err, t.PaintErr(t.Styles.Faint, fmt.Sprintf(format, args...)))
	}
}

// Clear empties the screen before a table that takes the place of the last one.
func (t *Terminal) Clear() {
	if t.out != nil {
		fmt.Fprint(t.Out, "\x1b[H\x1b[2J")
	}
}

// Print writes a result line.
func (t *Terminal) Print(format string, args ...any) {
	if _, err := fmt.Fprintf(t.Out, format+"\n", args...); err != nil && t.lost == nil {
		t.lost = fmt.Errorf("write the result: %w", err)
	}
}

// Lost is the error, if any, by which lines that Print or Table wrote were lost: a full disk behind a redirection.
func (t *Terminal) Lost() error { return t.lost }

// Paint renders text for the results in a style; plain where they go to no terminal.
func (t *Terminal) Paint(s lipgloss.Style, text string) string {
	if t.out == nil {
		return text
	}
	return s.Render(text)
}

// PaintErr renders text for what is said about the work.
func (t *Terminal) PaintErr(s lipgloss.Style, text string) string {
	if t.err == nil {
		return text
	}
	return s.Render(text)
}

// The size of a terminal that is not there.
const (
	DefaultWidth  = 100
	DefaultHeight = 32
)

// Size is the size of the terminal that shows the results, or the given one where there is none.
func (t *Terminal) Size(columns, lines int) (width, height int) {
	if t.out == nil {
		return columns, lines
	}
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width == 0 || height == 0 { // a terminal of no size: of a CI system, or a serial line
		return columns, lines
	}
	return width, height
}

// Some names the first of many: "a, b, c and 7 more".
func Some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
