package node

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

var pinName = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

// A bpf file system has no dots in names, and no file system slashes.
func TestNamesOfPinsAreThoseOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, number := rapid.String().Draw(t, "name"), rapid.Uint32Range(1, MaxNodes-1).Draw(t, "number")
		pin := escape(name)
		if !pinName.MatchString(pin) {
			t.Fatalf("%q is pinned as %q", name, pin)
		}
		if back := unescape(pin); back != name {
			t.Fatalf("%q is pinned as %q, which is %q", name, pin, back)
		}
		n := Nodes{config: Config{Dir: ""}}
		x, ok := parsePin(n.pin(&node{name: name, number: number}))
		if !ok || x.name != name || x.number != number {
			t.Fatalf("node %d %q is read back as %+v", number, name, x)
		}
	})
	for _, other := range []string{"", "x", "-x", "0-x", "4096-x", "new-1-x", "1"} {
		if x, ok := parsePin(other); ok {
			t.Errorf("%q is read as %+v", other, x)
		}
	}
}
