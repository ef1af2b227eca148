package topology

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// Limits of a file. They stop a file that was made to exhaust the reader; no real network comes near.
const (
	maxValues = 1_500_000 // aliases multiply them
	maxDepth  = 100
)

var treeLimits = yamltree.Limits{Bytes: 64 << 20, Marks: 2_500_000, Depth: maxDepth, Merged: 500_000}

// Parse reads a topology file. It reports everything that is wrong with it, in the order of the file; the topology
// is nil only where the file is not YAML at all. File names the file in errors, and the network where the file does
// not.
func Parse(file string, data []byte) (*Topology, Diagnostics) {
	root, found := readTree(file, data)
	if root == nil {
		return nil, found
	}
	d := decoder{budget: maxValues, report: report{found: found}}
	t := &Topology{file: file, data: data}
	d.topology(root, t)
	if t.Name == "" {
		t.Name = nameFrom(file)
	}
	if len(d.found) < maxFound && !d.lost {
		t.addMeaning(&d.found)
	}
	if len(d.found) == 0 {
		return t, nil
	}
	found = t.locate(root, d.found)
	slices.SortStableFunc(found, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return t, slices.CompactFunc(found, func(a, b Diagnostic) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Message == b.Message // an alias repeats it at other paths
	})
}

// addMeaning appends what is wrong with the meaning of a file, leaving out what follows from an error of its form
// that was already found.
func (t *Topology) addMeaning(found *Diagnostics) {
	known := map[string]bool{}
	for _, d := range *found {
		known[d.Path] = true
	}
	_, more := t.resolve(nil, false)
	for _, d := range more {
		at, err := parsePlace(d.Path)
		covered := false
		for err == nil && at != nil && !covered {
			covered, at = known[at.String()], at.parent
		}
		if !covered {
			*found = append(*found, d)
		}
	}
}

// readTree gives the tree of the file's one document; nil where there is none. What is wrong with a document that can
// be decoded all the same is found beside it.
func readTree(file string, data []byte) (root *yamltree.Node, found Diagnostics) {
	documents, problems := yamltree.Read(data, treeLimits)
	for _, p := range problems {
		found = append(found, Diagnostic{File: file, Line: p.Line, Column: p.Column, Message: p.Message, Hint: p.Hint})
	}
	fail := func(at yamltree.Position, hint, message string) {
		found = append(found, Diagnostic{File: file, Line: at.Line, Column: at.Column, Message: message, Hint: hint})
	}
	switch {
	case documents == nil:
	case len(documents) == 0:
		fail(yamltree.Position{Line: 1, Column: 1}, "write at least nodes: and links:", "the file is empty")
	case len(documents) == 1:
		return documents[0], found
	default:
		fail(documents[1].Position, "one network, one file", fmt.Sprintf("the file holds %d YAML documents", len(documents)))
	}
	found.addText(data)
	return nil, found
}

// addText adds the lines of the file that the diagnostics are about.
func (ds Diagnostics) addText(data []byte) {
	lines := bytes.Split(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\n"))
	for i, d := range ds {
		if d.Line >= 1 && d.Line <= len(lines) {
			ds[i].Text = string(bytes.TrimSuffix(lines[d.Line-1], []byte("\r")))
		}
	}
}

// nameFrom makes a network's name of its file's: labs/ring.yaml is ring.
func nameFrom(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	if len(name) > 63 || !namePattern.MatchString(name) {
		return ""
	}
	return name
}
