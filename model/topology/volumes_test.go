package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestVolumesAreNamesOrPathsOfTheHost(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(`name: lab
defaults: {node: {volumes: "log:/var/log/own"}}
nodes:
  a: {volumes: ["data:/srv/data", "cache:/srv/cache:ro", "./dir:/srv/dir:ro", "/srv/x:/srv/x"]}
  b:
  s: {kind: switch}
`))
	s := mustResolve(t, top, nil)
	a := s.Node("a")
	if diff := cmp.Diff([]slice.Volume{{Name: "data", Target: "/srv/data"},
		{Name: "cache", Target: "/srv/cache", ReadOnly: true}}, a.Volumes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]slice.Bind{{Source: "./dir", Target: "/srv/dir", ReadOnly: true},
		{Source: "/srv/x", Target: "/srv/x"}}, a.Binds); diff != "" {
		t.Error(diff)
	}
	if v := s.Node("b").Volumes; len(v) != 1 || v[0].Name != "log" {
		t.Errorf("b has %v", v)
	}
	checkDescription(t, s)
	// Nothing bounds them, so that they are root's to give. They are on any machine.
	holds := s.Node("b").Holds()
	if len(holds) != 1 || holds[0] != (slice.Hold{Field: "volumes", Volumes: true}) || holds[0].OfOneMachine() {
		t.Errorf("b holds %v", holds)
	}
}

func TestFaultsOfVolumesAreNamed(t *testing.T) {
	_, found := Parse("lab.yaml", []byte("name: lab\nnodes:\n  a: {volumes: [x, \"y z:/y\", \"d:/a\", \"d:/b\", "+
		"\"e:rel\", \"f:/f:rx\"]}\n  s: {kind: switch, volumes: \"x:/x\"}\n"))
	text := found.Error()
	for _, want := range []string{
		`"x" is not a volume`, `"y z" is not a name of a volume`, `volume "d" is named twice`,
		`"rel" is not an absolute path`, `unknown option "rx" of a volume`, "a switch has no volumes",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
