package diagnostic

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Diagnostic is one thing that is wrong with a topology.
type Diagnostic struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 where the position is not known
	Column  int    `json:"column,omitempty"` // in characters, from 1
	Path    string `json:"path,omitempty"`   // in the topology: nodes.denver.memory, links[3].ends[1]
	Message string `json:"message"`          // what is wrong
	Hint    string `json:"hint,omitempty"`   // what would be right
	Text    string `json:"text,omitempty"`   // the line of the file, where it is at hand
	// Warning is true where the topology is good all the same: an importer left something out.
	Warning bool `json:"warning,omitempty"`
	// LeftOut is true of a warning that sums up a key of an imported file that the topology does not have.
	LeftOut bool `json:"left_out,omitempty"`
}

// String gives `file:line:column: message (hint)` and, below, the line with a caret.
func (d Diagnostic) String() string {
	var b strings.Builder
	switch {
	case d.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", d.File, d.Line, d.Column)
	case d.File != "":
		b.WriteString(d.File + ": ")
	}
	if d.Line == 0 && d.Path != "" {
		b.WriteString(d.Path + ": ")
	}
	if d.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(d.Message)
	if d.Hint != "" {
		b.WriteString(" (" + d.Hint + ")")
	}
	if d.Text != "" {
		b.WriteString("\n" + excerpt(d.Text, d.Column))
	}
	return b.String()
}

// excerptWidth bounds the part of a line that an error shows.
const excerptWidth = 100

// excerpt shows a line of the file with a caret under a column. Tabs stay in the caret's line, so that both lines
// are expanded alike.
func excerpt(text string, column int) string {
	line := []rune(text)
	if column < 1 || column > len(line)+1 {
		return "    " + string(line[:min(len(line), excerptWidth)])
	}
	start := max(0, column-1-excerptWidth/2)
	end := min(len(line), start+excerptWidth)
	indent := make([]rune, 0, column)
	for _, r := range line[start : column-1] {
		if r != '\t' {
			r = ' '
		}
		indent = append(indent, r)
	}
	return "    " + string(line[start:end]) + "\n    " + string(indent) + "^"
}

// Diagnostics is all that is wrong with a topology, in the order of the file. Use Err to have it as an error: an
// empty Diagnostics in an error variable is not nil.
type Diagnostics []Diagnostic

// MaxPrinted bounds the errors that are shown at once.
const MaxPrinted = 50

// Error gives all of them, one after another.
func (ds Diagnostics) Error() string {
	var lines []string
	for i, d := range ds {
		if i == MaxPrinted {
			lines = append(lines, fmt.Sprintf("and %d more errors", len(ds)-MaxPrinted))
			break
		}
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
}

// Err is nil when nothing is wrong; warnings are not wrong.
func (ds Diagnostics) Err() error {
	wrong := slices.DeleteFunc(slices.Clone(ds), func(d Diagnostic) bool { return d.Warning })
	if len(wrong) == 0 {
		return nil
	}
	return wrong
}

// AddText adds the lines of the file that the diagnostics are about.
func (ds Diagnostics) AddText(data []byte) {
	lines := bytes.Split(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\n"))
	for i, d := range ds {
		if d.Line >= 1 && d.Line <= len(lines) {
			ds[i].Text = string(bytes.TrimSuffix(lines[d.Line-1], []byte("\r")))
		}
	}
}
