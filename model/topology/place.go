package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// place is a position in a topology, as a chain from the inside out: cheap to extend, written out only for an
// error. The nil place is the whole topology.
type place struct {
	parent *place
	key    string // of a map or struct
	index  int    // of a list, where key is empty
}

func (p *place) at(key string) *place   { return &place{parent: p, key: key} }
func (p *place) item(index int) *place  { return &place{parent: p, index: index} }
func inNode(name string) *place         { return (*place)(nil).at("nodes").at(name) }
func inLink(index int) *place           { return (*place)(nil).at("links").item(index) }
func inInterface(node, n string) *place { return inNode(node).at("interfaces").at(n) }

// LinkPath is the path of what became a link of s when the topology was resolved, as in Diagnostic.Path. Links without a name that join
// the same nodes are told apart by the age of their ports; where some are older than the file's order, it may be the wrong one of them.
func (t *Topology) LinkPath(s *slice.Slice, l *slice.Link) string {
	named := map[string]bool{}
	for i, in := range t.Links {
		if in.Name == l.Name {
			return inLink(i).String()
		}
		named[in.Name] = true
	}
	age := func(l *slice.Link) uint16 { return s.Node(l.Ends[0].Node).Interface(l.Ends[0].Interface).Port }
	older := 0
	for i := range s.Links {
		if other := &s.Links[i]; !named[other.Name] && sameNodes(other, l) && age(other) < age(l) {
			older++
		}
	}
	for i, in := range t.Links {
		if in.Name != "" || !slices.EqualFunc(in.Ends, l.Ends, func(w End, e slice.End) bool { return w.Node() == e.Node }) {
			continue
		}
		if older == 0 {
			return inLink(i).String()
		}
		older--
	}
	return "links"
}

func sameNodes(a, b *slice.Link) bool {
	return slices.EqualFunc(a.Ends, b.Ends, func(x, y slice.End) bool { return x.Node == y.Node })
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// String writes the place as nodes.denver.files["/etc/motd"].source or links[3].ends[1].
func (p *place) String() string {
	if p == nil {
		return ""
	}
	prefix := p.parent.String()
	switch {
	case p.key == "":
		return prefix + "[" + strconv.Itoa(p.index) + "]"
	case !plainKey.MatchString(p.key):
		return prefix + "[" + strconv.Quote(p.key) + "]"
	case prefix == "":
		return p.key
	}
	return prefix + "." + p.key
}

// parsePlace reads what String writes.
func parsePlace(text string) (*place, error) {
	var p *place
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
			p, rest = p.at(key), rest[len(quoted)+2:]
		case rest[0] == '[':
			number, after, found := strings.Cut(rest[1:], "]")
			index, err := strconv.Atoi(number)
			if !found || err != nil {
				return nil, fmt.Errorf("read path %q: bad index %q", text, number)
			}
			p, rest = p.item(index), after
		default:
			rest = strings.TrimPrefix(rest, ".")
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, fmt.Errorf("read path %q: empty key", text)
			}
			p, rest = p.at(rest[:end]), rest[end:]
		}
	}
	return p, nil
}

// steps lists the places from the outermost to p.
func (p *place) steps() []*place {
	if p == nil {
		return nil
	}
	return append(p.parent.steps(), p)
}

// report collects diagnostics.
type report struct {
	found Diagnostics
}

// maxFound bounds what one run collects: beyond it, more errors help nobody.
const maxFound = 1000

// add notes an error at a place. Hint may be empty.
func (r *report) add(at *place, hint, format string, args ...any) {
	if !r.full() {
		r.found = append(r.found, Diagnostic{Path: at.String(), Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

func (r *report) full() bool { return len(r.found) >= maxFound }
