package topology

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder fills Go values from a syntax tree. It notes everything that does not fit and goes on.
type decoder struct {
	report
	anchors map[string]ast.Node
	budget  int  // values that may still be read: aliases multiply them
	depth   int  // of the value that is being read
	lost    bool // so much is missing that errors of meaning would only mislead
}

// topology fills t from the root of the document.
func (d *decoder) topology(root ast.Node, t *Topology) {
	if _, isMap := d.resolve(root).(ast.MapNode); !isMap {
		d.fail(nil, root, "write nodes: and links:", "a topology is a map, this is %s", d.describe(root))
		d.lost = true
		return
	}
	d.value(root, nil, reflect.ValueOf(t).Elem())
	d.lost = d.lost || d.budget <= 0 || t.Nodes == nil && len(d.found) > 0
}

// fail notes an error at a node of the tree.
func (d *decoder) fail(at *place, n ast.Node, hint, format string, args ...any) {
	if d.full() {
		return
	}
	d.add(at, hint, format, args...)
	last := &d.found[len(d.found)-1]
	last.Line, last.Column = lineColumn(n)
}

// value fills v from n. A null leaves v as it is.
func (d *decoder) value(n ast.Node, at *place, v reflect.Value) {
	d.budget--
	d.depth++
	defer func() { d.depth-- }()
	if d.budget <= 0 || d.depth > maxDepth {
		if d.budget == 0 || d.depth > maxDepth {
			d.fail(at, n, "", "aliases nest too deep or expand to too much")
			d.budget = 0
		}
		return
	}
	node := d.resolve(n)
	if node == nil {
		d.fail(at, n, "", "alias without an anchor")
		return
	}
	if node.Type() == ast.NullType {
		return
	}
	if short, ok := shorthands[v.Type()]; ok && short(d, node, at, v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(node, at, v.Elem())
	case reflect.Struct:
		d.structure(node, at, v)
	case reflect.Map:
		d.mapping(node, at, v)
	case reflect.Slice:
		d.list(node, at, v)
	default:
		d.scalar(node, at, v)
	}
}

func (d *decoder) structure(n ast.Node, at *place, v reflect.Value) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fail(at, n, "", "%s is a map, not %s", nameOf(at), d.describe(n))
		return
	}
	fields := fieldsOf(v.Type())
	for _, e := range d.entries(m, at) {
		key := e.key
		if canonical, ok := spellings[key]; ok {
			if _, ok := fields.byName[canonical]; ok {
				key = canonical
			}
		}
		field, ok := fields.byName[key]
		switch {
		case ok:
			d.value(e.value, at.at(key), v.FieldByIndex(field.index))
		case at == nil && strings.HasPrefix(key, "x-"):
			// A place for the user's own anchors, as in Compose files.
		default:
			hint := suggest(key, fields.names)
			if known, ok := foreign[key]; ok {
				hint = known
			}
			if hint == "" {
				hint = suggestOr(key, fields.names)
			}
			d.fail(at.at(key), e.node, hint, "unknown key %q", key)
		}
	}
}

func (d *decoder) mapping(n ast.Node, at *place, v reflect.Value) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fail(at, n, "", "%s is a map, not %s", nameOf(at), d.describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range d.entries(m, at) {
		element := reflect.New(v.Type().Elem()).Elem()
		if element.Kind() == reflect.Pointer {
			element.Set(reflect.New(element.Type().Elem()))
			d.value(e.value, at.at(e.key), element.Elem())
		} else {
			d.value(e.value, at.at(e.key), element)
		}
		v.SetMapIndex(reflect.ValueOf(e.key), element)
	}
}

func (d *decoder) list(n ast.Node, at *place, v reflect.Value) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(at, n, "", "%s is a list, not %s", nameOf(at), d.describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(sequence.Values), len(sequence.Values)))
	for i, element := range sequence.Values {
		d.value(element, at.item(i), v.Index(i))
	}
}

func (d *decoder) scalar(n ast.Node, at *place, v reflect.Value) {
	text, ok := textOf(n)
	if !ok {
		d.fail(at, n, "", "%s is %s, not %s", nameOf(at), kindName(v.Kind()), d.describe(n))
		return
	}
	bad := false
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if bad = !ok; !bad {
			v.SetBool(b.Value)
		}
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if bad = err != nil || math.IsNaN(f) || math.IsInf(f, 0); !bad {
			v.SetFloat(f)
		}
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if bad = err != nil; !bad {
			v.SetInt(i)
		}
	case reflect.Uint32:
		u, err := strconv.ParseUint(text, 10, 32)
		if bad = err != nil; !bad {
			v.SetUint(u)
		}
	default:
		bad = true
	}
	if bad {
		d.fail(at, n, "", "%s is %s, not %s", nameOf(at), kindName(v.Kind()), d.describe(n))
	}
}

// entry is one key of a map with its value.
type entry struct {
	key   string
	node  ast.Node // the key
	value ast.Node
}

// entries lists a map's entries with merge keys (<<) worked in: what the map itself says wins. A key that stands
// twice is an error and counts once.
func (d *decoder) entries(m ast.MapNode, at *place) []entry {
	var own, merged []entry
	first := map[string]int{}
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			merged = append(merged, d.merged(it.Value(), at)...)
			continue
		}
		e := entry{keyText(it.Key()), it.Key(), it.Value()}
		if line, twice := first[e.key]; twice {
			d.fail(at.at(e.key), e.node, fmt.Sprintf("it stands in line %d already", line), "key %q is written twice", e.key)
			continue
		}
		first[e.key] = e.node.GetToken().Position.Line
		own = append(own, e)
	}
	for _, e := range merged {
		if _, ok := first[e.key]; !ok {
			first[e.key] = 0
			own = append(own, e)
		}
	}
	return own
}

// merged lists the entries of a merge key's value: a map or a list of maps.
func (d *decoder) merged(n ast.Node, at *place) []entry {
	d.depth++
	defer func() { d.depth-- }()
	if d.budget--; d.budget <= 0 || d.depth > maxDepth {
		d.fail(at, n, "", "aliases nest too deep or expand to too much")
		d.budget = 0
		return nil
	}
	switch value := d.resolve(n).(type) {
	case ast.MapNode:
		found := d.entries(value, at)
		d.budget -= len(found)
		return found
	case *ast.SequenceNode:
		var all []entry
		for _, element := range value.Values {
			all = append(all, d.merged(element, at)...)
		}
		return all
	}
	d.fail(at, n, "write <<: *name", "a merge key wants a map or a list of maps")
	return nil
}

// resolve goes through anchors, aliases and tags to the value; nil for an alias without anchor.
func (d *decoder) resolve(n ast.Node) ast.Node { return resolveNode(n, d.anchors) }

func resolveNode(n ast.Node, anchors map[string]ast.Node) ast.Node {
	for range maxDepth {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			if node.Value == nil {
				return nil
			}
			target, ok := anchors[node.Value.GetToken().Value]
			if !ok {
				return nil
			}
			n = target
		default:
			return n
		}
		if n == nil {
			return nil
		}
	}
	return nil
}

// keyText is a map key as written.
func keyText(key ast.MapKeyNode) string {
	var n ast.Node = key
	if explicit, ok := n.(*ast.MappingKeyNode); ok && explicit.Value != nil {
		n = explicit.Value
	}
	if text, ok := textOf(n); ok {
		return text
	}
	return n.String()
}

// textOf is a scalar as written: a node may be called 007, an environment variable hold 1.20.
func textOf(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// describe words what a node of the tree is.
func (d *decoder) describe(n ast.Node) string {
	n = d.resolve(n)
	if text, ok := textOf(n); ok {
		if len(text) > 40 {
			text = string([]rune(text)[:min(40, len([]rune(text)))]) + "…"
		}
		return strconv.Quote(text)
	}
	switch n.(type) {
	case ast.MapNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	}
	return "something else"
}

func kindName(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		return "a text"
	}
}

// nameOf is the last key of a place, for messages.
func nameOf(at *place) string {
	for p := at; p != nil; p = p.parent {
		if p.key != "" {
			if p != at {
				return "an element of " + p.key
			}
			return p.key
		}
	}
	return "the topology"
}
