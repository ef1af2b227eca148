package diagnostic

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Place is a position in a topology, as a chain from the inside out: cheap to extend, written out only for an
// error. The nil place is the whole topology.
type Place struct {
	Parent *Place
	Key    string // of a map or struct
	Index  int    // of a list, where key is empty
}

// At is the place of a key in p, a map or a struct.
func (p *Place) At(key string) *Place { return &Place{Parent: p, Key: key} }

// Item is the place of an element of p, a list; the index counts from 0.
func (p *Place) Item(index int) *Place { return &Place{Parent: p, Index: index} }

// Root is the place of the whole topology.
var Root *Place

// InNode is the place of a node.
func InNode(name string) *Place { return Root.At("nodes").At(name) }

// InLink is the place of a link.
func InLink(index int) *Place { return Root.At("links").Item(index) }

// InInterface is the place of what a node says about one of its interfaces.
func InInterface(node, name string) *Place { return InNode(node).At("interfaces").At(name) }

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// String writes the place as nodes.denver.files["/etc/motd"].source or links[3].ends[1].
func (p *Place) String() string {
	if p == nil {
		return ""
	}
	prefix := p.Parent.String()
	switch {
	case p.Key == "":
		return prefix + "[" + strconv.Itoa(p.Index) + "]"
	case !plainKey.MatchString(p.Key):
		return prefix + "[" + strconv.Quote(p.Key) + "]"
	case prefix == "":
		return p.Key
	}
	return prefix + "." + p.Key
}

// ParsePlace reads what String writes.
func ParsePlace(text string) (*Place, error) {
	var p *Place
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, `["`):
			quoted, err := strconv.QuotedPrefix(rest[1:])
			if err != nil || !strings.HasPrefix(rest[1+len(quoted):], "]") {
				return nil, fmt.Errorf("read path %q: bad quoting", text)
			}
			key, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("read path %q: %w", text, err)
			}
			p, rest = p.At(key), rest[len(quoted)+2:]
		case rest[0] == '[':
			number, after, found := strings.Cut(rest[1:], "]")
			index, err := strconv.Atoi(number)
			if !found || err != nil {
				return nil, fmt.Errorf("read path %q: bad index %q", text, number)
			}
			p, rest = p.Item(index), after
		default:
			rest = strings.TrimPrefix(rest, ".")
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, fmt.Errorf("read path %q: empty key", text)
			}
			p, rest = p.At(rest[:end]), rest[end:]
		}
	}
	return p, nil
}

// Steps lists the places from the outermost to p.
func (p *Place) Steps() []*Place {
	if p == nil {
		return nil
	}
	return append(p.Parent.Steps(), p)
}

// Report collects diagnostics.
type Report struct {
	Found Diagnostics
}

// maxFound bounds the diagnostics that are collected.
const maxFound = 1000

// Add notes an error at a place. Hint may be empty.
func (r *Report) Add(at *Place, hint, format string, args ...any) {
	if !r.Full() {
		r.Found = append(r.Found, Diagnostic{Path: at.String(), Message: fmt.Sprintf(format, args...),
			Hint: hint})
	}
}

// Full reports whether no more diagnostics are collected.
func (r *Report) Full() bool { return len(r.Found) >= maxFound }
