package topology

import "github.com/pergola-net/pergola/model/topology/yamltree"

// Locate fills file, line and column of diagnostics that have only a path: those of Resolve, also when it ran in a
// server that never saw the file.
func (t *Topology) Locate(ds Diagnostics) Diagnostics {
	if t.data == nil || len(ds) == 0 {
		return ds
	}
	root, found := readTree(t.file, t.data)
	if root == nil || found.Err() != nil {
		return ds
	}
	return t.locate(root, ds)
}

func (t *Topology) locate(root *yamltree.Node, ds Diagnostics) Diagnostics {
	located := make(Diagnostics, len(ds))
	for i, d := range ds {
		if d.Line == 0 {
			if at, err := parsePlace(d.Path); err == nil {
				position := find(root, at)
				d.Line, d.Column = position.Line, position.Column
			}
		}
		d.File = t.file
		located[i] = d
	}
	located.addText(t.data)
	return located
}

// find gives the position of a place, or of the innermost place around it that is in the file.
func find(root *yamltree.Node, at *place) yamltree.Position {
	here, position := root, root.Position
	for _, step := range at.steps() {
		switch here.Kind {
		case yamltree.Map:
			e, ok := entryOf(here, step.key)
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
	for spelling, canonical := range spellings {
		if canonical == key {
			if e, ok := n.Get(spelling); ok {
				return e, true
			}
		}
	}
	return yamltree.Entry{}, false
}

// itemOf is the element of a list that a step goes to; nil where the step stays at the list.
func itemOf(n *yamltree.Node, step *place) *yamltree.Node {
	if step.key == "" {
		if step.index < len(n.Items) {
			return n.Items[step.index]
		}
		return nil
	}
	for _, item := range n.Items {
		if text, ok := item.Scalar(); ok && text == step.key {
			return item
		}
	}
	return nil
}
