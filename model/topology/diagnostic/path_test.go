package diagnostic

import "testing"

func TestPositionsAreReadBack(t *testing.T) {
	for _, text := range []string{"", "name", "nodes.a.memory", "links[3].ends[1]",
		`nodes.a.files["/etc/x.\"y\"[0]"].source`, `nodes[""]`} {
		at, err := ParsePath(text)
		if err != nil || at.String() != text && text != `nodes[""]` {
			t.Errorf("%s: read as %s, %v", text, at, err)
		}
	}
	for _, text := range []string{"a..b", "a[", "a[x]", `a["x`, `a["x"`} {
		if _, err := ParsePath(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
