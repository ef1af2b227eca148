package diagnostic

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Path leads to a value in a topology. It is a chain from the inside out: cheap to extend, and written out only for an
// error. The nil path is the whole topology.
type Path struct {
	Parent *Path
	Key    string // of a map or struct
	Index  int    // of a list, where key is empty
}

// At is the path to a key in p, a map or a struct.
func (p *Path) At(key string) *Path { return &Path{Parent: p, Key: key} }

// Item is the path to an element of p, a list; the index counts from 0.
func (p *Path) Item(index int) *Path { return &Path{Parent: p, Index: index} }

// Root is the path to the whole topology.
var Root *Path

// InNode is the path to a node.
func InNode(name string) *Path { return Root.At("nodes").At(name) }

// InLink is the path to a link.
func InLink(index int) *Path { return Root.At("links").Item(index) }

// InInterface is the path to what a node says about one of its interfaces.
func InInterface(node, name string) *Path { return InNode(node).At("interfaces").At(name) }

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// String writes the path as nodes.denver.files["/etc/motd"].source or links[3].ends[1].
func (p *Path) String() string {
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

// ParsePath reads what String writes.
func ParsePath(text string) (*Path, error) {
	var p *Path
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

// Steps lists the paths from the outermost to p.
func (p *Path) Steps() []*Path {
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

// Add notes an error at a path. Hint may be empty.
func (r *Report) Add(at *Path, hint, format string, args ...any) {
	if !r.Full() {
		r.Found = append(r.Found, Diagnostic{Path: at.String(), Message: fmt.Sprintf(format, args...),
			Hint: hint})
	}
}

// Full reports whether no more diagnostics are collected.
func (r *Report) Full() bool { return len(r.Found) >= maxFound }
