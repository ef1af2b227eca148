package target

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

type running []string

func (r running) Slices(context.Context) (all []api.Summary, err error) {
	for _, name := range r {
		all = append(all, api.Summary{Name: name})
	}
	return all, nil
}

// text is all that a person reads of an error.
func text(err error) string {
	if err == nil {
		return ""
	}
	var e *ui.Error
	if errors.As(err, &e) {
		return err.Error() + "; " + e.Do
	}
	return err.Error()
}

func TestSliceWithoutANameIsTheDefault(t *testing.T) {
	for _, c := range []struct {
		running         running
		name, described string
		want, fails     string
	}{
		{running{"a", "b"}, "b", "a", "b", ""},
		{running{"a"}, "", "", "a", ""},
		{running{"a"}, "", "other", "a", ""},
		{running{"a", "b"}, "", "b", "b", ""},
		{running{"a", "b"}, "", "", "", "2 networks are running: say which one is meant; running are a, b"},
		{running{}, "", "", "", "no network is running; start one"},
		{running{}, "a", "", "", `network "a" is not running: none is`},
		{running{"abilene", "b"}, "abilen", "", "", `network "abilen" is not running; did you mean abilene?`},
	} {
		got, err := Slice(t.Context(), c.running, c.name, c.described)
		if got != c.want || !strings.HasPrefix(text(err), c.fails) || (err == nil) != (c.fails == "") {
			t.Errorf("%v, name %q, described %q: got %q, %s", c.running, c.name, c.described,
				got, text(err))
		}
	}
}

var lab = &slice.Slice{
	Name: "lab",
	Nodes: []slice.Node{
		{Name: "leaf1", Kind: slice.Router, Interfaces: []slice.Interface{{Name: "eth1"}, {Name: "eth2"}}},
		{Name: "leaf2", Kind: slice.Router, Interfaces: []slice.Interface{{Name: "eth1"}}},
		{Name: "pc", Kind: slice.Host},
		{Name: "sw", Kind: slice.Switch},
	},
	Links: []slice.Link{{
		Name: "leaf1:eth1--leaf2:eth1",
		Ends: []slice.End{{Node: "leaf1", Interface: "eth1"}, {Node: "leaf2", Interface: "eth1"}},
	}},
}

func TestNodes(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    []string
		fails   string
	}{
		{"pc", []string{"pc"}, ""},
		{"leaf*", []string{"leaf1", "leaf2"}, ""},
		{"leaf[2-9]", []string{"leaf2"}, ""},
		{"*", []string{"leaf1", "leaf2", "pc"}, ""},
		{"sw", nil, "sw is a switch: nothing can run in it"},
		{"laef1", nil, `network lab has no node "laef1"; did you mean leaf1?`},
		{"x*", nil, `no node of lab matches "x*"`},
		{"[", nil, `pattern "["`},
	} {
		got, err := Nodes(lab, c.pattern)
		if !cmp.Equal(got, c.want) || !strings.HasPrefix(text(err), c.fails) ||
			(err == nil) != (c.fails == "") {
			t.Errorf("%s: got %v, %s", c.pattern, got, text(err))
		}
	}
}

func TestLinkIsFoundByNameAndByEnd(t *testing.T) {
	for word, end := range map[string]string{"leaf1:eth1--leaf2:eth1": "", "leaf2:eth1": "leaf2:eth1"} {
		l, got, err := Link(lab, word)
		if err != nil || l != &lab.Links[0] || got != end {
			t.Errorf("%s: got %v, %q, %v", word, l, got, err)
		}
	}
	for word, fails := range map[string]string{
		"leaf2:eth7": `network lab has no link "leaf2:eth7"; did you mean leaf2:eth1?`,
		"leaf1":      "which link of leaf1?; there is leaf1:eth1, leaf1:eth2",
	} {
		if _, _, err := Link(lab, word); text(err) != fails {
			t.Errorf("%s: got %s, want %s", word, text(err), fails)
		}
	}
}

func TestInterface(t *testing.T) {
	for word, fails := range map[string]string{
		"leaf1:eth2": "",
		"leaf1":      "which interface of leaf1?; there is leaf1:eth1, leaf1:eth2",
		"leaf1:eth3": `node leaf1 has no interface "eth3"; did you mean leaf1:eth1?`,
		"laef1:eth1": `network lab has no node "laef1"; did you mean leaf1?`,
	} {
		_, _, err := Interface(lab, word)
		if text(err) != fails {
			t.Errorf("%s: got %s, want %s", word, text(err), fails)
		}
	}
}
