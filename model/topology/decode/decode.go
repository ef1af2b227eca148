package decode

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// decoder fills Go values from a tree. It notes everything that does not fit and goes on.
type decoder struct {
	diagnostic.Report
	budget int  // values that may still be read: aliases multiply them
	depth  int  // of the value that is being read
	lost   bool // so much is missing that errors of meaning would only mislead
}

// topology fills t from the root of the document.
func (d *decoder) topology(root *yamltree.Node, t *file.Topology) {
	if root.Kind != yamltree.Map {
		d.fail(nil, root.Position, "write nodes: and links:", "a topology is a map, this is %s",
			root.Describe())
		d.lost = true
		return
	}
	if nodes, _ := root.Get("nodes"); nodes.Value != nil && len(nodes.Value.Entries) > slice.MaxNodes {
		first := nodes.Value.Entries[slice.MaxNodes]
		d.fail(nil, first.Position, "", "more than %d nodes: one network cannot have more", slice.MaxNodes)
		d.lost = true
		return
	}
	d.value(root, nil, reflect.ValueOf(t).Elem())
	d.lost = d.lost || d.budget <= 0 || t.Nodes == nil && len(d.Found) > 0
}

// fail notes an error at a position of the file.
func (d *decoder) fail(at *diagnostic.Path, position yamltree.Position, hint, format string, args ...any) {
	if d.Full() {
		return
	}
	d.Add(at, hint, format, args...)
	last := &d.Found[len(d.Found)-1]
	last.Line, last.Column = position.Line, position.Column
}

// value fills v from n. A null leaves v as it is.
func (d *decoder) value(n *yamltree.Node, at *diagnostic.Path, v reflect.Value) {
	d.budget--
	d.depth++
	defer func() { d.depth-- }()
	if d.budget <= 0 || d.depth > maxDepth {
		if d.budget == 0 || d.depth > maxDepth {
			d.fail(at, n.Position, "", "aliases nest too deep or expand to too much")
			d.budget = 0
		}
		return
	}
	if n.Kind == yamltree.Null {
		return
	}
	if short, ok := shorthands[v.Type()]; ok && short(d, n, at, v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, at, v.Elem())
	case reflect.Struct:
		d.structure(n, at, v)
	case reflect.Map:
		d.mapping(n, at, v)
	case reflect.Slice:
		d.list(n, at, v)
	default:
		d.scalar(n, at, v)
	}
}

func (d *decoder) structure(n *yamltree.Node, at *diagnostic.Path, v reflect.Value) {
	if n.Kind != yamltree.Map {
		d.fail(at, n.Position, "", "%s is a map, not %s", nameOf(at), n.Describe())
		return
	}
	fields := file.FieldsOf(v.Type())
	for _, e := range n.Entries {
		key := e.Key
		if canonical, ok := file.Spellings[key]; ok {
			if _, ok := fields.ByName[canonical]; ok {
				key = canonical
			}
		}
		field, ok := fields.ByName[key]
		switch {
		case ok:
			d.value(e.Value, at.At(key), v.FieldByIndex(field.Index))
		case at == nil && strings.HasPrefix(key, "x-"):
			// For the user's own anchors, as in Compose files.
		default:
			d.fail(at.At(key), e.Position, keyHint(key, fields), "unknown key %q", key)
		}
	}
}

// keyHint says what to write in place of an unknown key.
func keyHint(key string, fields *file.Fields) string {
	if hint, ok := foreign[key]; ok {
		return hint
	}
	if name, value, joined := strings.Cut(key, ":"); joined { // {cpu:1} is one word to YAML
		if _, ok := fields.ByName[name]; ok {
			return fmt.Sprintf("write %s: %s, with a blank after the colon", name, value)
		}
	}
	return diagnostic.SuggestOr(key, fields.Names)
}

func (d *decoder) mapping(n *yamltree.Node, at *diagnostic.Path, v reflect.Value) {
	if n.Kind != yamltree.Map {
		d.fail(at, n.Position, "", "%s is a map, not %s", nameOf(at), n.Describe())
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.Entries {
		element := reflect.New(v.Type().Elem()).Elem()
		if element.Kind() == reflect.Pointer {
			element.Set(reflect.New(element.Type().Elem()))
			d.value(e.Value, at.At(e.Key), element.Elem())
		} else {
			d.value(e.Value, at.At(e.Key), element)
		}
		v.SetMapIndex(reflect.ValueOf(e.Key), element)
	}
}

func (d *decoder) list(n *yamltree.Node, at *diagnostic.Path, v reflect.Value) {
	if n.Kind != yamltree.List {
		d.fail(at, n.Position, "", "%s is a list, not %s", nameOf(at), n.Describe())
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, element := range n.Items {
		d.value(element, at.Item(i), v.Index(i))
	}
}

func (d *decoder) scalar(n *yamltree.Node, at *diagnostic.Path, v reflect.Value) {
	text, ok := n.Scalar()
	if !ok {
		d.fail(at, n.Position, "", "%s is %s, not %s", nameOf(at), kindName(v.Kind()), n.Describe())
		return
	}
	bad := false
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, ok := n.Bool()
		if bad = !ok; !bad {
			v.SetBool(b)
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
		d.fail(at, n.Position, "", "%s is %s, not %s", nameOf(at), kindName(v.Kind()), n.Describe())
	}
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

// nameOf is the last key of a path, for messages.
func nameOf(at *diagnostic.Path) string {
	for p := at; p != nil; p = p.Parent {
		if p.Key != "" {
			if p != at {
				return "an element of " + p.Key
			}
			return p.Key
		}
	}
	return "the topology"
}
