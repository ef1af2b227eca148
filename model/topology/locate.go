package topology

import (
	"bytes"

	"github.com/goccy/go-yaml/ast"
)

// Locate fills file, line and column of diagnostics that have only a path: those of Resolve, also when it ran in a
// server that never saw the file.
func (t *Topology) Locate(ds Diagnostics) Diagnostics {
	if t.data == nil || len(ds) == 0 {
		return ds
	}
	src := source{file: t.file, data: t.data}
	root, anchors, found := src.parse()
	if len(found) > 0 {
		return ds
	}
	return t.locate(root, anchors, ds)
}

func (t *Topology) locate(root ast.Node, anchors map[string]ast.Node, ds Diagnostics) Diagnostics {
	located := make(Diagnostics, len(ds))
	lines := bytes.Split(t.data, []byte("\n"))
	f := finder{d: decoder{anchors: anchors}}
	for i, d := range ds {
		if d.Line == 0 {
			if at, err := parsePlace(d.Path); err == nil {
				d.Line, d.Column = f.find(root, at)
			}
		}
		d.File = t.file
		if d.Line >= 1 && d.Line <= len(lines) {
			d.Text = string(bytes.TrimSuffix(lines[d.Line-1], []byte("\r")))
		}
		located[i] = d
	}
	return located
}

// finder looks places up in a syntax tree.
type finder struct {
	d decoder
	// index holds the entries of the large maps, so that a thousand errors do not search them a thousand times.
	index map[ast.Node]map[string]entry
}

// find gives the position of a place, or of the innermost place around it that is in the file.
func (f *finder) find(root ast.Node, at *place) (line, column int) {
	here, position := f.d.resolve(root), root
	for _, step := range at.steps() {
		switch n := here.(type) {
		case ast.MapNode:
			e, ok := f.entry(n, step.key)
			if !ok {
				return lineColumn(position)
			}
			here, position = f.d.resolve(e.value), e.node
		case *ast.SequenceNode:
			element := elementOf(&f.d, n, step)
			if element == nil {
				continue // a short form: the list stands for one of its own keys
			}
			here, position = f.d.resolve(element), element
		default:
			continue // a short form: a text stands for a list or a map
		}
		if _, ok := textOf(here); ok && here.Type() != ast.NullType {
			position = here
		}
	}
	return lineColumn(position)
}

// elementOf is the element of a list that a step goes to; nil where the step stays at the list.
func elementOf(d *decoder, n *ast.SequenceNode, step *place) ast.Node {
	if step.key == "" {
		if step.index < len(n.Values) {
			return n.Values[step.index]
		}
		return nil
	}
	for _, element := range n.Values {
		if text, ok := textOf(d.resolve(element)); ok && text == step.key {
			return element
		}
	}
	return nil
}

func (f *finder) entry(m ast.MapNode, key string) (entry, bool) {
	node, isNode := m.(ast.Node)
	if !isNode {
		return entry{}, false
	}
	known, ok := f.index[node]
	if !ok {
		known = map[string]entry{}
		f.d.budget = maxValues
		for _, e := range f.d.entries(m, nil) {
			name := e.key
			if canonical, ok := spellings[name]; ok {
				known[canonical] = e
			}
			known[name] = e
		}
		if f.index == nil {
			f.index = map[ast.Node]map[string]entry{}
		}
		f.index[node] = known
	}
	e, ok := known[key]
	return e, ok
}

// lineColumn is where a node begins. A block map has no token of its own: it begins with its first key.
func lineColumn(n ast.Node) (line, column int) {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	} else if m, ok := n.(*ast.MappingValueNode); ok {
		n = m.Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}

// lineOf is a line of the file, counted from 1, without its end; empty outside the file.
func lineOf(data []byte, line int) string {
	for ; line > 1; line-- {
		_, after, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return ""
		}
		data = after
	}
	if line < 1 {
		return ""
	}
	text, _, _ := bytes.Cut(data, []byte("\n"))
	return string(bytes.TrimSuffix(text, []byte("\r")))
}
