package importer

import (
	"bytes"
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a YAML file. The parser is recursive, and slow with very large maps.
const (
	maxYAML   = 2 << 20 // bytes
	maxTokens = 150_000
	maxNested = 100
	maxIndent = 400
	maxValues = 400_000 // after aliases are resolved, which can multiply
)

// valueKind is the form of a value.
type valueKind int

const (
	null valueKind = iota
	scalar
	list
	object
)

func (k valueKind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a map"}[k]
}

// value is a YAML value with its place in the file; aliases and merge keys are worked in.
type value struct {
	kind         valueKind
	text         string // of a scalar, as written
	items        []value
	fields       []field
	line, column int
}

type field struct {
	key          string
	line, column int
	value
}

// get gives the field of that key; its kind is null where there is none.
func (v value) get(key string) value {
	for _, f := range v.fields {
		if f.key == key {
			return f.value
		}
	}
	return value{line: v.line, column: v.column}
}

// yamlReader turns a syntax tree into values.
type yamlReader struct {
	*report
	anchors map[string]ast.Node
	budget  int
	depth   int
}

// readYAML parses a file of one document. The value is of use where the report has no error.
func readYAML(r *report, data []byte) value {
	if len(data) > maxYAML {
		r.fail(0, 0, "", "the file has %d MiB; at most %d are read", len(data)>>20, maxYAML>>20)
		return value{}
	}
	tokens := lexer.Tokenize(string(bytes.TrimPrefix(data, []byte("\ufeff"))))
	if at := tooDeep(tokens); at != nil {
		r.fail(at.Position.Line, at.Position.Column, "", "the file is nested too deep, or too large")
		return value{}
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err, bytes.Contains(data, []byte("{{")))
		return value{}
	}
	y := &yamlReader{report: r, anchors: map[string]ast.Node{}, budget: maxValues}
	for _, document := range tree.Docs {
		if document.Body != nil && document.Body.Type() != ast.NullType && document.Body.Type() != ast.DirectiveType {
			ast.Walk(y, document.Body)
			return y.value(document.Body)
		}
	}
	r.fail(1, 1, "", "the file is empty")
	return value{}
}

func (r *report) syntax(err error, template bool) {
	hint := ""
	if template {
		hint = "the file is a template: fill it in first, then import what comes out"
	}
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil && e.GetToken().Position != nil {
		r.fail(e.GetToken().Position.Line, e.GetToken().Position.Column, hint, "not YAML: %s", e.GetMessage())
		return
	}
	r.fail(0, 0, hint, "not YAML: %v", err)
}

// tooDeep finds the token at which the nesting or the size passes the limits.
func tooDeep(tokens token.Tokens) *token.Token {
	open, chain, line := 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			line, chain = t.Position.Line, 0
			if open == 0 && t.Position.Column > maxIndent {
				return t
			}
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			chain++
		default:
		}
		if open > maxNested || chain > maxNested || i > maxTokens {
			return t
		}
	}
	return nil
}

// Visit gathers anchors; it implements ast.Visitor.
func (y *yamlReader) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil {
		y.anchors[anchor.Name.GetToken().Value] = anchor.Value
	}
	return y
}

func (y *yamlReader) value(n ast.Node) value {
	v := value{}
	if n == nil || n.GetToken() == nil {
		return v
	}
	v.line, v.column = n.GetToken().Position.Line, n.GetToken().Position.Column
	y.budget--
	y.depth++
	defer func() { y.depth-- }()
	if y.budget <= 0 || y.depth > maxNested {
		if y.budget == 0 || y.depth > maxNested {
			y.fail(v.line, v.column, "", "aliases nest too deep or expand to too much")
			y.budget = 0
		}
		return v
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		return y.value(n.Value)
	case *ast.TagNode:
		return y.value(n.Value)
	case *ast.AliasNode:
		target, ok := y.anchors[n.Value.GetToken().Value]
		if !ok {
			y.fail(v.line, v.column, "", "alias *%s has no anchor", n.Value.GetToken().Value)
			return v
		}
		return y.value(target)
	case *ast.NullNode:
	case *ast.SequenceNode:
		v.kind = list
		for _, item := range n.Values {
			v.items = append(v.items, y.value(item))
		}
	case *ast.MappingNode:
		y.object(&v, n.Values)
	case *ast.MappingValueNode:
		y.object(&v, []*ast.MappingValueNode{n})
	case *ast.LiteralNode:
		v.kind, v.text = scalar, n.Value.Value
	default:
		v.kind, v.text = scalar, n.GetToken().Value
	}
	return v
}

// object reads a map. What a merge key (<<) brings comes after the map's own fields, which go first in get.
func (y *yamlReader) object(v *value, entries []*ast.MappingValueNode) {
	v.kind = object
	if len(entries) > 0 {
		at := entries[0].Key.GetToken().Position
		v.line, v.column = at.Line, at.Column
	}
	seen := map[string]bool{}
	var merged []field
	for _, e := range entries {
		at := e.Key.GetToken().Position
		key := e.Key.GetToken().Value
		if e.Key.IsMergeKey() {
			from := y.value(e.Value)
			for _, source := range append([]value{from}, from.items...) {
				merged = append(merged, source.fields...)
			}
			continue
		}
		if seen[key] {
			y.fail(at.Line, at.Column, "", "key %q is written twice", key)
		}
		seen[key] = true
		v.fields = append(v.fields, field{key: key, line: at.Line, column: at.Column, value: y.value(e.Value)})
	}
	for _, f := range merged {
		if !seen[f.key] {
			seen[f.key] = true
			v.fields = append(v.fields, f)
		}
	}
}

// want reports a value that is not of the kind, unless it is absent.
func (r *report) want(v value, k valueKind, what string) bool {
	if v.kind != k && v.kind != null {
		r.fail(v.line, v.column, "", "%s is %s, not %s", what, v.kind, k)
	}
	return v.kind == k
}

// str gives a scalar's text.
func (r *report) str(v value, what string) string {
	r.want(v, scalar, what)
	return strings.TrimSpace(v.text)
}

// strs gives a list of scalars.
func (r *report) strs(v value, what string) (texts []string) {
	if !r.want(v, list, what) {
		return nil
	}
	for _, item := range v.items {
		if r.want(item, scalar, "an entry of "+what) {
			texts = append(texts, strings.TrimSpace(item.text))
		}
	}
	return texts
}

// pairs gives a map of scalars.
func (r *report) pairs(v value, what string) map[string]string {
	if !r.want(v, object, what) {
		return nil
	}
	texts := make(map[string]string, len(v.fields))
	for _, f := range v.fields {
		if f.kind != null && !r.want(f.value, scalar, what+"."+f.key) {
			continue
		}
		texts[f.key] = f.text
	}
	return texts
}
