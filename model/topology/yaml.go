package topology

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Parse reads a topology file. It reports everything that is wrong with it, in the order of the file; the topology
// is nil only where the file is not YAML at all. File names the file in errors, and the network where the file does not.
func Parse(file string, data []byte) (*Topology, Diagnostics) {
	src := source{file: file, data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	root, anchors, found := src.parse()
	if len(found) > 0 {
		return nil, found
	}
	d := decoder{anchors: anchors, budget: maxValues}
	t := &Topology{file: file, data: src.data}
	d.topology(root, t)
	if t.Name == "" {
		t.Name = nameFrom(file)
	}
	if len(d.found) < maxFound && !d.lost {
		t.addMeaning(&d.found)
	}
	if len(d.found) == 0 {
		return t, nil
	}
	found = t.locate(root, anchors, d.found)
	slices.SortStableFunc(found, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return t, slices.CompactFunc(found, func(a, b Diagnostic) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Message == b.Message // an alias repeats it at other paths
	})
}

// addMeaning appends what is wrong with the meaning of a file, leaving out what follows from an error of its form
// that was already found.
func (t *Topology) addMeaning(found *Diagnostics) {
	known := map[string]bool{}
	for _, d := range *found {
		known[d.Path] = true
	}
	_, more := t.resolve(nil, false)
	for _, d := range more {
		at, err := parsePlace(d.Path)
		covered := false
		for err == nil && at != nil && !covered {
			covered, at = known[at.String()], at.parent
		}
		if !covered {
			*found = append(*found, d)
		}
	}
}

// source is a file on its way to a syntax tree.
type source struct {
	file string
	data []byte
}

// fail is the one diagnostic of a file that cannot be read at all.
func (s source) fail(line, column int, hint, format string, args ...any) Diagnostics {
	d := Diagnostic{File: s.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint}
	d.Text = lineOf(s.data, line)
	return Diagnostics{d}
}

// parse gives the tree of the file's one document, and its anchors.
func (s source) parse() (root ast.Node, anchors map[string]ast.Node, found Diagnostics) {
	if len(s.data) > maxFileBytes {
		return nil, nil, s.fail(0, 0, "", "the file has %d MiB; at most %d are read", len(s.data)>>20, maxFileBytes>>20)
	}
	if line, column, bad := invalidText(s.data); bad != "" {
		return nil, nil, s.fail(line, column, "save the file as UTF-8 text", "%s", bad)
	}
	tokens, at, reason := tokenize(string(s.data))
	if reason != "" {
		return nil, nil, s.fail(at.Line, at.Column, "", "%s", reason)
	}
	tree, err := parser.Parse(joinColons(tokens), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, nil, s.syntax(err)
	}
	var documents []ast.Node
	for _, document := range tree.Docs {
		if document.Body != nil && document.Body.Type() != ast.NullType && document.Body.Type() != ast.DirectiveType {
			documents = append(documents, document.Body)
		}
	}
	switch len(documents) {
	case 0:
		return nil, nil, s.fail(1, 1, "write at least nodes: and links:", "the file is empty")
	case 1:
		collected := collector{}
		ast.Walk(collected, documents[0])
		return documents[0], collected, nil
	}
	line, column := lineColumn(documents[1])
	return nil, nil, s.fail(line, column, "one network, one file", "the file holds %d YAML documents", len(documents))
}

// syntax words an error of the YAML parser.
func (s source) syntax(err error) Diagnostics {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil || e.GetToken().Position == nil {
		return s.fail(0, 0, "", "not YAML: %v", err)
	}
	at, hint := e.GetToken().Position, ""
	if strings.Contains(e.GetMessage(), "character '\t'") {
		hint = "YAML indents by spaces, not by tabs"
	}
	return s.fail(at.Line, at.Column, hint, "not YAML: %s", e.GetMessage())
}

// collector gathers anchors by name.
type collector map[string]ast.Node

// Visit implements ast.Visitor.
func (c collector) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil {
		c[anchor.Name.GetToken().Value] = anchor.Value
	}
	return c
}

// invalidText finds the first byte that a text file does not have.
func invalidText(data []byte) (line, column int, reason string) {
	line, column = 1, 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return line, column, fmt.Sprintf("byte 0x%02x is not UTF-8", rest[0])
		case r == '\n':
			line, column = line+1, 0
		case r < ' ' && r != '\t' && r != '\r' || r == 0x7f:
			return line, column, fmt.Sprintf("control character 0x%02x", r)
		}
		rest, column = rest[size:], column+1
	}
	return 0, 0, ""
}

// nameFrom makes a network's name of its file's: labs/ring.yaml is ring.
func nameFrom(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	if len(name) > 63 || !namePattern.MatchString(name) {
		return ""
	}
	return name
}
