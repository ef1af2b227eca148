package file

import (
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// LinkPath is the path, as in Diagnostic.Path, of the link from which a link of s was resolved. Links without a name
// that join the same nodes are distinguished by the age of their ports. Where the file lists such links in another
// order than their age, the path can be that of another one of them.
func (t *Topology) LinkPath(s *slice.Slice, l *slice.Link) string {
	named := map[string]bool{}
	for i, in := range t.Links {
		if in.Name == l.Name {
			return diagnostic.InLink(i).String()
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
		if in.Name != "" || !slices.EqualFunc(in.Ends, l.Ends, func(w End, e slice.End) bool {
			return w.Node() == e.Node
		}) {
			continue
		}
		if older == 0 {
			return diagnostic.InLink(i).String()
		}
		older--
	}
	return "links"
}

func sameNodes(a, b *slice.Link) bool {
	return slices.EqualFunc(a.Ends, b.Ends, func(x, y slice.End) bool { return x.Node == y.Node })
}
