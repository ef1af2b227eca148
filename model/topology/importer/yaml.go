package importer

import (
	"bytes"
	"strings"

	"github.com/pergola-net/pergola/model/topology/yamltree"
)

var treeLimits = yamltree.Limits{Bytes: 2 << 20, Marks: 150_000, Depth: 100, Merged: 150_000}

const maxValues = 400_000 // after aliases are resolved, which can multiply

// readYAML gives the first document of a file. It is of use where the report has no error.
func readYAML(r *report, data []byte) *yamltree.Node {
	documents, problems := yamltree.Read(data, treeLimits)
	for _, p := range problems {
		if len(documents) == 0 && bytes.Contains(data, []byte("{{")) {
			p.Hint = "the file is a template: fill it in first, then import what comes out"
		}
		r.fail(p.Position, p.Hint, "%s", p.Message)
	}
	if len(documents) == 0 {
		if len(problems) == 0 {
			r.fail(yamltree.Position{Line: 1, Column: 1}, "", "the file is empty")
		}
		return &yamltree.Node{}
	}
	root := documents[0]
	if bomb := root.Bomb(maxValues, treeLimits.Depth); bomb != nil {
		r.fail(bomb.Position, "", "%s", bomb.Message)
	}
	return root
}

// want reports a value that is not of the kind, unless it is absent.
func (r *report) want(v *yamltree.Node, k yamltree.Kind, what string) bool {
	if v.Kind != k && v.Kind != yamltree.Null {
		r.fail(v.Position, "", "%s is %s, not %s", what, v.Kind, k)
	}
	return v.Kind == k
}

// str gives a scalar's text.
func (r *report) str(v *yamltree.Node, what string) string {
	if !r.want(v, yamltree.Scalar, what) {
		return ""
	}
	return strings.TrimSpace(v.Text)
}

// scalars gives the entries of a list of scalars, without those that are empty.
func (r *report) scalars(v *yamltree.Node, what string) (items []*yamltree.Node) {
	if !r.want(v, yamltree.List, what) {
		return nil
	}
	for _, item := range v.Items {
		if r.want(item, yamltree.Scalar, "an entry of "+what) {
			items = append(items, item)
		}
	}
	return items
}

// strs gives the texts of a list of scalars.
func (r *report) strs(v *yamltree.Node, what string) (texts []string) {
	for _, item := range r.scalars(v, what) {
		texts = append(texts, strings.TrimSpace(item.Text))
	}
	return texts
}

// pairs gives a map of scalars.
func (r *report) pairs(v *yamltree.Node, what string) map[string]string {
	if !r.want(v, yamltree.Map, what) {
		return nil
	}
	texts := make(map[string]string, len(v.Entries))
	for _, e := range v.Entries {
		if e.Value.Kind == yamltree.Null {
			texts[e.Key] = ""
		} else if r.want(e.Value, yamltree.Scalar, what+"."+e.Key) {
			texts[e.Key] = e.Value.Text
		}
	}
	return texts
}
