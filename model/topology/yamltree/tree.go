// Package yamltree reads YAML into a tree in which every key and every value has its line and column. It is the only
// reader of YAML: topologies, containerlab files and image tables are decoded from its tree.
//
//	Read  text to tree; what is wrong with the text, with its position
//
// The files: read.go bounds and parses the text, build.go makes the tree and applies aliases and merge keys.
package yamltree

import (
	"fmt"
	"strconv"
)

// Position is a position in a file. Line and column count from 1, the column in characters; both are 0 where it is not
// known.
type Position struct{ Line, Column int }

// Kind is the form of a value.
type Kind uint8

// The kinds.
const (
	Null   Kind = iota // no value, ~ or null
	Scalar             // a single value
	List
	Map
)

// String names the kind for messages.
func (k Kind) String() string { return [...]string{"nothing", "a single value", "a list", "a map"}[k] }

// Node is one value of a file. An alias is the node of its anchor: several parents can share a node, and in a hostile
// file a node can contain itself. Code that descends a tree must bound depth and number (see Bomb).
type Node struct {
	Position // of the value's first character; of a block map or list, that of its first key or dash
	Kind     Kind
	Text     string  // of a scalar or null, as written but without quotes: a node may be called 007
	Items    []*Node // of a list
	Entries  []Entry // of a map: its own in the order of the file, then those of merge keys (<<); keys are unique
	bool     bool    // an unquoted true or false
}

// Entry is one key of a map with its value.
type Entry struct {
	Position // of the key
	Key      string
	Value    *Node
}

// Get gives the entry of that key; false where the map has none, or the node is no map.
func (n *Node) Get(key string) (Entry, bool) {
	for _, e := range n.Entries {
		if e.Key == key {
			return e, true
		}
	}
	return Entry{}, false
}

// Field gives the value of that key; where there is none, a null at the node's own position.
func (n *Node) Field(key string) *Node {
	if e, ok := n.Get(key); ok {
		return e.Value
	}
	return &Node{Position: n.Position}
}

// Scalar gives the text of a single value, also of null; false for a list or a map.
func (n *Node) Scalar() (string, bool) { return n.Text, n.Kind == Null || n.Kind == Scalar }

// Bool gives the value of an unquoted true or false; ok is false for anything else.
func (n *Node) Bool() (value, ok bool) {
	if !n.bool {
		return false, false
	}
	value, err := strconv.ParseBool(n.Text)
	return value, err == nil
}

// Describe says what a value is, for messages: "a list", or the text in quotes.
func (n *Node) Describe() string {
	const longest = 40
	text, ok := n.Scalar()
	if !ok {
		return n.Kind.String()
	}
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return strconv.Quote(text)
}

// Problem is one thing that is wrong with a text.
type Problem struct {
	Position
	Message string
	Hint    string // what would be right; may be empty
}

func problemf(at Position, hint, format string, args ...any) *Problem {
	return &Problem{Position: at, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// tooMuch is the message of files that aliases make too deep or too large.
const tooMuch = "aliases nest too deep or expand to too much"

// Bomb finds the value at which aliases make a tree deeper than depth levels or larger than size values. It is nil
// where the tree stays within both. The work is in proportion to the file, not to what the aliases expand to.
func (n *Node) Bomb(size, depth int) *Problem {
	b := bomb{known: map[*Node]extent{}, size: size, depth: depth}
	b.measure(n)
	return b.found
}

type extent struct{ size, depth int }

// bomb measures each node once.
type bomb struct {
	known       map[*Node]extent
	size, depth int
	found       *Problem
}

func (b *bomb) measure(n *Node) extent {
	if known, ok := b.known[n]; ok {
		if known.size == 0 { // the node contains itself
			known = extent{b.size, b.depth}
		}
		return known
	}
	b.known[n] = extent{}
	whole := extent{size: 1}
	add := func(child *Node) {
		if b.found != nil {
			return
		}
		part := b.measure(child)
		whole = extent{whole.size + part.size, max(whole.depth, part.depth)}
	}
	for _, item := range n.Items {
		add(item)
	}
	for _, e := range n.Entries {
		add(e.Value)
	}
	whole.depth++
	b.known[n] = whole
	if b.found == nil && (whole.size > b.size || whole.depth > b.depth) {
		b.found = problemf(n.Position, "", tooMuch)
	}
	return whole
}
