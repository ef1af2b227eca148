package topology

import (
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/pergola-net/pergola/model/slice"
)

// Limits of a file. They stop a file that was made to exhaust the reader; no real network comes near.
const (
	maxFileBytes = 64 << 20
	maxTokens    = 4_000_000
	maxValues    = 1_500_000 // aliases multiply them
	maxDepth     = 100
	maxColumn    = 1000 // where a line begins
	maxEntries   = 2 * slice.MaxNodes
)

// tokenize takes a file apart, unless there is an excess in it. The scanner knows no end but that of its text, and needs
// hundreds of bytes for a token, so it is given ever longer parts of the file: an excess costs what stands before it.
func tokenize(text string) (tokens token.Tokens, at token.Position, reason string) {
	for size := 64 << 10; size < len(text); size *= 4 {
		if at, reason := excess(scan(text[:size], true)); reason != "" {
			return nil, at, reason
		}
	}
	tokens = scan(text, false)
	at, reason = excess(tokens)
	return tokens, at, reason
}

// scan goes on after an error, as the parser wants it, unless the text is but a part: then the cut may be the error, and
// what follows it is read wrongly.
func scan(text string, part bool) (tokens token.Tokens) {
	var s scanner.Scanner
	s.Init(text)
	for {
		more, err := s.Scan()
		if errors.Is(err, io.EOF) || err != nil && part {
			return tokens
		}
		tokens.Add(more...)
	}
}

// excess looks at the tokens of a file before the YAML parser runs: that parser works recursively, and in time that
// grows with the square of a block map's entries.
func excess(tokens token.Tokens) (at token.Position, reason string) {
	if len(tokens) > maxTokens {
		return at, fmt.Sprintf("the file has more than %d YAML tokens", maxTokens)
	}
	m := meter{entries: map[int]int{}}
	for _, t := range tokens {
		if reason := m.next(t); reason != "" {
			if t.Type == token.MappingValueType && t.Prev != nil {
				t = t.Prev // the key says more than its colon
			}
			return *t.Position, reason
		}
	}
	return at, ""
}

// meter measures nesting and map sizes along a file.
type meter struct {
	line    int
	flow    int         // brackets and braces that are open
	chain   int         // tokens in this line that each open a level: "- - - x"
	entries map[int]int // of the block maps that are open, by column of their keys
	section string      // the key in column 1 that we are under
}

func (m *meter) next(t *token.Token) (reason string) {
	if t.Position.Line != m.line {
		m.line, m.chain = t.Position.Line, 0
		if m.flow == 0 {
			m.dedent(t.Position.Column)
			if t.Position.Column > maxColumn {
				return "indented too far"
			}
		}
	}
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		m.flow++
	case token.MappingEndType, token.SequenceEndType:
		m.flow--
	case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
		m.chain++
	case token.MappingValueType:
		if m.flow == 0 && t.Prev != nil {
			return m.entry(t.Prev)
		}
	default:
	}
	if m.flow > maxDepth || m.chain > maxDepth {
		return fmt.Sprintf("nested deeper than %d levels", maxDepth)
	}
	return ""
}

// dedent closes the block maps right of a column.
func (m *meter) dedent(column int) {
	for c := range m.entries {
		if c > column {
			delete(m.entries, c)
		}
	}
}

func (m *meter) entry(key *token.Token) (reason string) {
	column := key.Position.Column
	if column == 1 {
		m.section = key.Value
	}
	m.entries[column]++
	switch {
	case m.section == "nodes" && m.entries[column] > slice.MaxNodes:
		return tooManyNodes
	case m.entries[column] > maxEntries:
		return fmt.Sprintf("a map has more than %d entries", maxEntries)
	}
	return ""
}

var tooManyNodes = fmt.Sprintf("more than %d nodes: one network cannot have more", slice.MaxNodes)
