package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestNodesWaitForOthers(t *testing.T) {
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(`name: lab
nodes:
  db: {exec: "true"}
  fill: {cmd: "true", restart: never, wait_for: "db:ready"}
  app: {wait_for: [db, "fill:exited"], start_delay: 2s}
`)), nil)
	app := s.Node("app")
	want := []slice.WaitFor{{Node: "db", Until: slice.UntilRunning}, {Node: "fill", Until: slice.UntilExited}}
	if diff := cmp.Diff(want, app.WaitFor); diff != "" || app.StartDelay != 2*time.Second {
		t.Errorf("%s\nand a delay of %s", diff, app.StartDelay)
	}
	if !s.AwaitsEnd("fill") || s.AwaitsEnd("db") {
		t.Error("the end of fill is awaited, and that of db is not")
	}
	checkDescription(t, s)
}

func TestFaultsOfWaitsAreNamed(t *testing.T) {
	_, found := Parse("lab.yaml", []byte(`name: lab
nodes:
  a: {wait_for: [b, nobody, "b:healthy", s, "b:exited"], start_delay: 2h}
  b: {wait_for: c}
  c: {wait_for: a}
  d: {wait_for: d}
  s: {kind: switch}
`))
	text := found.Error()
	for _, want := range []string{
		`there is no node "nobody" to wait for`, `"healthy" is none of running, ready, exited`,
		`"s" has no process to wait for`, `"b" is started again whenever it ends`, "delay 2h is out of range",
		"nodes wait for each other: a for b for c for a", "nodes wait for each other: d for d",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
