package decode

import (
	"fmt"

	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// Limits of a file. They stop a file that was made to exhaust the reader; no real network comes near.
const (
	maxValues = 1_500_000 // aliases multiply them
	maxDepth  = 100
)

var treeLimits = yamltree.Limits{Bytes: 64 << 20, Marks: 2_500_000, Depth: maxDepth, Merged: 500_000}

// File fills a topology from a file. The topology is nil where the file is not YAML at all. Lost is true where so
// much is missing that errors of meaning would mislead.
func File(name string, data []byte) (t *file.Topology, root *yamltree.Node, found diagnostic.Diagnostics, lost bool) {
	root, found = readTree(name, data)
	if root == nil {
		return nil, nil, found, true
	}
	d := decoder{budget: maxValues}
	d.Found = found
	t = &file.Topology{Origin: &file.Origin{File: name, Text: data}}
	d.topology(root, t)
	return t, root, d.Found, d.lost || d.Full()
}

// readTree gives the tree of the file's one document; nil where there is none. What is wrong with a document that can
// be decoded all the same is found beside it.
func readTree(file string, data []byte) (root *yamltree.Node, found diagnostic.Diagnostics) {
	documents, problems := yamltree.Read(data, treeLimits)
	for _, p := range problems {
		found = append(found, diagnostic.Diagnostic{File: file, Line: p.Line, Column: p.Column,
			Message: p.Message, Hint: p.Hint})
	}
	fail := func(at yamltree.Position, hint, message string) {
		found = append(found, diagnostic.Diagnostic{File: file, Line: at.Line, Column: at.Column,
			Message: message, Hint: hint})
	}
	switch {
	case documents == nil:
	case len(documents) == 0:
		fail(yamltree.Position{Line: 1, Column: 1}, "write at least nodes: and links:", "the file is empty")
	case len(documents) == 1:
		return documents[0], found
	default:
		fail(documents[1].Position, "one network, one file",
			fmt.Sprintf("the file holds %d YAML documents", len(documents)))
	}
	found.AddText(data)
	return nil, found
}
