package decode

import (
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// Locate fills file, line and column of diagnostics that have only a path.
func Locate(origin *file.Origin, ds diagnostic.Diagnostics) diagnostic.Diagnostics {
	if origin == nil || len(ds) == 0 {
		return ds
	}
	root, found := readTree(origin.File, origin.Text)
	if root == nil || found.Err() != nil {
		return ds
	}
	return LocateIn(root, origin, ds)
}

// LocateIn is Locate for a tree that is read already.
func LocateIn(root *yamltree.Node, origin *file.Origin, ds diagnostic.Diagnostics) diagnostic.Diagnostics {
	located := make(diagnostic.Diagnostics, len(ds))
	for i, d := range ds {
		if d.Line == 0 {
			if at, err := diagnostic.ParsePath(d.Path); err == nil {
				position := find(root, at)
				d.Line, d.Column = position.Line, position.Column
			}
		}
		d.File = origin.File
		located[i] = d
	}
	located.AddText(origin.Text)
	return located
}

// find gives the position of a path, or of the innermost path around it that is in the file.
func find(root *yamltree.Node, at *diagnostic.Path) yamltree.Position {
	here, position := root, root.Position
	for _, step := range at.Steps() {
		switch here.Kind {
		case yamltree.Map:
			e, ok := entryOf(here, step.Key)
			if !ok {
				return position
			}
			here, position = e.Value, e.Position
		case yamltree.List:
			item := itemOf(here, step)
			if item == nil {
				continue // a short form: the list stands for one of its own keys
			}
			here, position = item, item.Position
		default:
			continue // a short form: a text stands for a list or a map
		}
		if here.Kind == yamltree.Scalar {
			position = here.Position
		}
	}
	return position
}

// entryOf is the entry of a key, under any of its spellings.
func entryOf(n *yamltree.Node, key string) (yamltree.Entry, bool) {
	if e, ok := n.Get(key); ok {
		return e, true
	}
	for spelling, canonical := range file.Spellings {
		if canonical == key {
			if e, ok := n.Get(spelling); ok {
				return e, true
			}
		}
	}
	return yamltree.Entry{}, false
}

// itemOf is the element of a list that a step goes to; nil where the step stays at the list.
func itemOf(n *yamltree.Node, step *diagnostic.Path) *yamltree.Node {
	if step.Key == "" {
		if step.Index < len(n.Items) {
			return n.Items[step.Index]
		}
		return nil
	}
	for _, item := range n.Items {
		if text, ok := item.Scalar(); ok && text == step.Key {
			return item
		}
	}
	return nil
}
