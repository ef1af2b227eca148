package yamltree

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// builder makes the tree of one file from the library's nodes.
type builder struct {
	anchored   map[*yaml.Node]*Node // what aliases refer to
	unfinished map[*Node]bool       // anchored nodes that are still being read
	budget     int                  // entries that merge keys may still bring
	problems   []Problem
}

func (b *builder) document(root *yaml.Node) *Node {
	if len(root.Content) == 0 {
		return &Node{}
	}
	return b.node(root.Content[0])
}

// maxProblems bounds the problems that are collected of one file.
const maxProblems = 1000

func (b *builder) fail(at Position, hint, format string, args ...any) {
	if len(b.problems) < maxProblems {
		b.problems = append(b.problems, *problemf(at, hint, format, args...))
	}
}

func positionIn(in *yaml.Node) Position { return Position{Line: in.Line, Column: in.Column} }

// node makes a node; for an alias it gives the node of the anchor. The recursion is as deep as the text is nested.
func (b *builder) node(in *yaml.Node) *Node {
	if in.Kind == yaml.AliasNode {
		if target := b.anchored[in.Alias]; target != nil {
			return target
		}
		in = in.Alias // the anchor of a merge key, which has no node
	}
	n := &Node{Position: positionIn(in)}
	if in.Anchor != "" {
		if b.anchored == nil {
			b.anchored, b.unfinished = map[*yaml.Node]*Node{}, map[*Node]bool{}
		}
		b.anchored[in] = n
		b.unfinished[n] = true
		defer delete(b.unfinished, n)
	}
	switch in.Kind {
	case yaml.SequenceNode:
		n.Kind = List
		n.Items = make([]*Node, len(in.Content))
		for i, item := range in.Content {
			n.Items[i] = b.item(item)
		}
	case yaml.MappingNode:
		n.Kind = Map
		b.entries(n, in)
	default:
		n.Kind, n.Text = Scalar, in.Value
		switch tag := in.ShortTag(); tag {
		case "!!null":
			n.Kind = Null
		case "!!bool":
			n.bool = true
		}
	}
	return n
}

// item makes an element of a list. Between brackets, YAML reads an address that ends in a colon, [fd00::], as a map of
// the key "fd00:" without a value; it is the address that is meant.
func (b *builder) item(in *yaml.Node) *Node {
	if in.Kind == yaml.MappingNode && len(in.Content) == 2 {
		key, value := in.Content[0], in.Content[1]
		bare := positionIn(in) == positionIn(key) && key.Kind == yaml.ScalarNode && key.Style == 0 &&
			key.Anchor == ""
		if bare && strings.HasSuffix(key.Value, ":") && value.Value == "" && value.ShortTag() == "!!null" {
			return &Node{Position: positionIn(key), Kind: Scalar, Text: key.Value + ":"}
		}
	}
	return b.node(in)
}

// entries reads a map. Of equal keys the first counts; the map's own keys win over those of merge keys.
func (b *builder) entries(n *Node, in *yaml.Node) {
	n.Entries = make([]Entry, 0, len(in.Content)/2)
	lines := make(map[string]int, len(in.Content)/2) // of the first entry of each key
	var merged []Entry
	for i := 0; i+1 < len(in.Content); i += 2 {
		if key := in.Content[i]; key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			merged = append(merged, b.merged(b.node(in.Content[i+1]))...)
			continue
		}
		key, at := b.node(in.Content[i]), positionIn(in.Content[i])
		value := b.node(in.Content[i+1])
		text, ok := key.Scalar()
		if !ok {
			b.fail(at, "a text in braces needs quotes", "a key is a single value, not %s", key.Kind)
			continue
		}
		e := Entry{Position: at, Key: text, Value: value}
		if first, repeated := lines[text]; repeated {
			b.fail(at, fmt.Sprintf("it stands in line %d already", first), "key %q is written twice", text)
			continue
		}
		lines[text] = e.Line
		n.Entries = append(n.Entries, e)
	}
	for _, e := range merged {
		if _, own := lines[e.Key]; !own {
			lines[e.Key] = e.Line
			n.Entries = append(n.Entries, e)
		}
	}
}

// merged lists the entries that the value of a merge key brings: those of a map, or of a list of maps.
func (b *builder) merged(value *Node) []Entry {
	sources := []*Node{value}
	if value.Kind == List && !b.unfinished[value] {
		sources = value.Items
	}
	var all []Entry
	for _, source := range sources {
		switch {
		case b.unfinished[source]: // a map within itself
			b.fail(source.Position, "", tooMuch)
		case source.Kind != Map:
			b.fail(source.Position, "write <<: *name", "a merge key wants a map or a list of maps")
		case b.budget < len(source.Entries):
			if b.budget >= 0 {
				b.fail(source.Position, "", tooMuch)
			}
			b.budget = -1
		default:
			b.budget -= len(source.Entries)
			all = append(all, source.Entries...)
		}
	}
	return all
}
