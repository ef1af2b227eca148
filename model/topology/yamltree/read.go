package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Limits stop a file that was made to exhaust its reader.
type Limits struct {
	Bytes int // of the file
	// Marks are the characters without which YAML begins no value: line ends, commas, colons, dashes and brackets.
	// Their number bounds that of the values before the file is parsed, also where they stand in a long text.
	Marks  int
	Depth  int // levels of nesting
	Merged int // entries that merge keys bring, in the whole file
}

// Read parses a file. It gives its documents without those that are empty. Documents are nil where the text cannot be
// parsed; the first problem says why. Other problems leave the documents of use.
func Read(data []byte, limits Limits) (documents []*Node, problems []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if found := excess(data, limits); found != nil {
		return nil, []Problem{*found}
	}
	if found := invalidText(data); found != nil {
		return nil, []Problem{*found}
	}
	roots, found := parse(data, limits.Depth)
	if found != nil {
		return nil, []Problem{*found}
	}
	b := builder{budget: limits.Merged}
	documents = []*Node{}
	for _, root := range roots {
		if n := b.document(root); n.Kind != Null {
			documents = append(documents, n)
		}
	}
	return documents, b.problems
}

// excess reports a file that is too large to be parsed.
func excess(data []byte, limits Limits) *Problem {
	if len(data) > limits.Bytes {
		return problemf(Position{}, "", "the file has %d MiB; at most %d are read", len(data)>>20,
			limits.Bytes>>20)
	}
	marks := 0
	for _, c := range data {
		if markTable[c] {
			marks++
		}
	}
	if marks > limits.Marks {
		return problemf(Position{}, "",
			"the file has %d line ends, commas, colons, dashes and brackets; at most %d are read", marks,
			limits.Marks)
	}
	return nil
}

// markTable holds the characters that Limits.Marks counts.
var markTable = func() (table [256]bool) {
	for _, c := range []byte("\n\r,:-?[]{}") {
		table[c] = true
	}
	return table
}()

// invalidText finds the first character that YAML does not allow in a file (YAML 1.2.2, section 5.1).
func invalidText(data []byte) *Problem {
	const hint = "save the file as UTF-8 text"
	at := Position{Line: 1, Column: 1}
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return problemf(at, hint, "byte 0x%02x is not UTF-8", rest[0])
		case r == '\n':
			at = Position{Line: at.Line + 1}
		case r < ' ' && r != '\t' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85:
			return problemf(at, hint, "control character 0x%02x", r)
		case r == 0xfeff, r == 0xfffe, r == 0xffff:
			return problemf(at, hint, "character U+%04X", r)
		}
		rest = rest[size:]
		at.Column++
	}
	return nil
}

// depthLimit stops the parser at a nesting depth. It implements yaml.LoaderLimitsPlugin.
type depthLimit struct {
	most     int
	exceeded bool
}

// CheckDepth is called where the parser goes a level deeper.
func (l *depthLimit) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > l.most {
		l.exceeded = true
		return errors.New("nested too deep")
	}
	return nil
}

// CheckAlias is not called when nodes are read: the tree shares the nodes of aliases.
func (*depthLimit) CheckAlias(int, int) error { return nil }

// parse gives the documents of a file, as the library has them.
func parse(data []byte, depth int) (roots []*yaml.Node, found *Problem) {
	defer func() {
		// the library panics where its own states contradict each other
		if failure := recover(); failure != nil {
			roots, found = nil, problemf(Position{}, "", "not YAML: %v", failure)
		}
	}()
	limit := &depthLimit{most: depth}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(limit))
	if err != nil {
		return nil, problemf(Position{}, "", "not YAML: %v", err)
	}
	for {
		root := &yaml.Node{}
		switch err := loader.Load(root); {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil && limit.exceeded:
			return nil, problemf(positionOf(err), "", "nested deeper than %d levels", depth)
		case err != nil:
			return nil, syntaxProblem(data, err)
		}
		roots = append(roots, root)
	}
}

// positionOf is where the library saw an error.
func positionOf(err error) Position {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return Position{}
	}
	mark := e.Mark
	if mark.Line == 0 {
		mark = e.ContextMark
	}
	return Position{Line: mark.Line, Column: mark.Column}
}

const noTabs = "YAML indents by spaces, not by tabs"

// syntaxProblem words an error of the library.
func syntaxProblem(data []byte, err error) *Problem {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return problemf(Position{}, "", "not YAML: %v", err)
	}
	at, message := positionOf(err), e.Message
	if strings.HasPrefix(message, "unknown anchor") {
		return problemf(at, "", "alias without an anchor")
	}
	hint := ""
	if began := e.ContextMark; began.Line != 0 && began.Line != at.Line {
		hint = openPart(e.ContextMsg, began.Line)
		// at the end of the file: show where the open part begins
		if at.Line > bytes.Count(data, []byte("\n")) {
			at, hint = Position{Line: began.Line, Column: began.Column}, ""
		}
	}
	switch c := runeAt(data, at); {
	case strings.Contains(message, "cannot start any token") && c == '\t':
		message, hint = "found character '\t' that cannot start any token", noTabs
	case strings.Contains(message, "found a tab character"):
		hint = noTabs
	case strings.Contains(message, "cannot start any token"):
		message, hint = fmt.Sprintf("found character %q that cannot start any token", c),
			"put the text in quotes"
	case (c == '[' || c == '{') && runeAt(data, before(at)) == ':':
		hint = "write a blank after the colon"
	case hint == "" && c == ':' && strings.Contains(message, "did not find expected ','"):
		hint = `a text with ": " in it, or a colon at its end, needs quotes`
	case strings.Contains(message, "mapping values are not allowed"):
		hint = `a text that holds ": " needs quotes`
	}
	return problemf(at, hint, "not YAML: %s", message)
}

// openPart says in which part of the file, begun in an earlier line, an error stands.
func openPart(context string, line int) string {
	switch {
	case strings.Contains(context, "flow sequence"):
		return fmt.Sprintf("the [ in line %d is not closed", line)
	case strings.Contains(context, "flow mapping"):
		return fmt.Sprintf("the { in line %d is not closed", line)
	}
	return fmt.Sprintf("%s that begins in line %d", context, line)
}

func before(at Position) Position { return Position{Line: at.Line, Column: at.Column - 1} }

// runeAt is the character at a position; 0 outside the text.
func runeAt(data []byte, at Position) rune {
	line := []rune(Line(data, at.Line))
	if at.Column < 1 || at.Column > len(line) {
		return 0
	}
	return line[at.Column-1]
}

// Line is a line of a file, counted from 1, without its end; empty outside the file.
func Line(data []byte, number int) string {
	for ; number > 1; number-- {
		_, after, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return ""
		}
		data = after
	}
	if number < 1 {
		return ""
	}
	text, _, _ := bytes.Cut(data, []byte("\n"))
	return string(bytes.TrimSuffix(text, []byte("\r")))
}
