package topology

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/decode"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/resolve"
)

// Parse reads a topology file. It reports everything that is wrong with it, in the order of the file; the topology
// is nil only where the file is not YAML at all. Name names the file in errors, and the network where the file does
// not.
func Parse(name string, data []byte) (*Topology, Diagnostics) {
	t, root, found, lost := decode.File(name, data)
	if t == nil {
		return nil, found
	}
	if t.Name == "" {
		t.Name = nameFrom(name)
	}
	if !lost {
		found = append(found, meaning(t, found)...)
	}
	if len(found) == 0 {
		return t, nil
	}
	found = decode.LocateIn(root, t.Origin, found)
	slices.SortStableFunc(found, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return t, slices.CompactFunc(found, func(a, b Diagnostic) bool {
		// an alias repeats it at other paths
		return a.Line == b.Line && a.Column == b.Column && a.Message == b.Message
	})
}

// meaning is what is wrong with the meaning of a file, without what follows from an error of its form.
func meaning(t *Topology, form Diagnostics) (found Diagnostics) {
	known := map[string]bool{}
	for _, d := range form {
		known[d.Path] = true
	}
	_, all := resolve.Slice(t, nil, false)
	for _, d := range all {
		at, err := diagnostic.ParsePath(d.Path)
		covered := false
		for err == nil && at != nil && !covered {
			covered, at = known[at.String()], at.Parent
		}
		if !covered {
			found = append(found, d)
		}
	}
	return found
}

// Resolve turns what a user wrote into a slice in which every default is written out, every name and address is
// chosen and every file is present. Prev is the version of the slice that runs now, or nil: what it chose is kept
// where the same thing still exists. The slice is nil where anything is wrong.
func Resolve(t *Topology, prev *slice.Slice) (*slice.Slice, Diagnostics) {
	s, found := resolve.Slice(t, prev, true)
	if len(found) > 0 {
		return nil, decode.Locate(t.Origin, found)
	}
	return s, nil
}

// Locate fills file, line and column of diagnostics that have only a path: those of Resolve, also when it ran in a
// server that never saw the file.
func Locate(t *Topology, ds Diagnostics) Diagnostics { return decode.Locate(t.Origin, ds) }

// nameFrom makes a network's name of its file's: labs/ring.yaml is ring.
func nameFrom(name string) string {
	name, _, _ = strings.Cut(path.Base(name), ".")
	if len(name) > 63 || !file.NamePattern.MatchString(name) {
		return ""
	}
	return name
}
