package topology

import (
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestFastPathHasTheMostSpecificSetting(t *testing.T) {
	const file = `
defaults: {node: {daemon: frr, fastpath: off}}
groups: {core: {fastpath: on, members: [b, c]}}
nodes:
  a:
  b:
  c: {fastpath: "off"}
  h: {kind: host}
  s: {kind: switch}
links: [[a, b], [b, c], [c, h], [h, s]]
`
	top := mustParse(t, "t.yaml", []byte(file))
	s := mustResolve(t, top, nil)
	want := map[string]slice.FastPath{"a": slice.FastPathOff, "b": "", "c": slice.FastPathOff, "h": "", "s": ""}
	for name, fastpath := range want {
		if got := s.Node(name).FastPath; got != fastpath {
			t.Errorf("%s: fastpath %q, want %q", name, got, fastpath)
		}
	}
}
