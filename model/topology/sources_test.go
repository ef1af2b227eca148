package topology

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const withFiles = `name: files
groups:
  core: {members: [a], files: {/etc/motd: motd.txt}}
nodes:
  a: {config: a.conf}
  b: {rootfs: fs.tar.gz}
  p: {program: x.c, filters: [any -> drop, more.txt]}
`

func TestSourcesAreReadByTheCaller(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(withFiles))
	var where []string
	for _, s := range top.Sources() {
		where = append(where, s.Where+" "+s.Path)
	}
	want := []string{`groups.core.files["/etc/motd"] motd.txt`, `nodes.a.config["a.conf"] a.conf`,
		`nodes.b.rootfs fs.tar.gz`, `nodes.p.program x.c`, `nodes.p.filters[1] more.txt`}
	if diff := cmp.Diff(want, where); diff != "" {
		t.Error(diff)
	}
	_, found := Resolve(top, nil)
	got := make([]string, len(found))
	for i, d := range found {
		d.Text = ""
		got[i] = d.String()
	}
	want = []string{
		`lab.yaml:5:15: the file "a.conf" was not sent`,
		`lab.yaml:4:1: the file "motd.txt" was not sent`,
		`lab.yaml:6:15: the archive "fs.tar.gz" was not sent`,
		`lab.yaml:7:16: the file "x.c" was not sent`,
	}
	for _, line := range want {
		if !strings.Contains(strings.Join(got, "\n"), line[strings.Index(line, "the"):]) {
			t.Errorf("%q is not said:\n%s", line, strings.Join(got, "\n"))
		}
	}
	for _, s := range top.Sources() {
		if s.IsArchive() {
			s.SHA256 = strings.Repeat("0", 64)
		} else {
			s.Data = []byte{} // an empty file is a file, also after a journey as JSON
		}
	}
	sent := throughJSON(t, top)
	s := mustResolve(t, sent, nil)
	if s.Node("b").Rootfs.Ref != strings.Repeat("0", 64) || s.Node("a").Routing.Config["frr.conf"] == nil {
		t.Errorf("files are lost: %+v", s)
	}
}

func throughJSON(t *testing.T, top *Topology) *Topology {
	t.Helper()
	data, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	var sent Topology
	if err := json.Unmarshal(data, &sent); err != nil {
		t.Fatal(err)
	}
	return &sent
}

// The server resolves what came as JSON and knows paths alone; who has the file finds the lines.
func TestErrorsOfTheServerAreLocatedInTheFile(t *testing.T) {
	file := "name: lab\nnodes:\n  a: {kind: uplink}\n  b:\nlinks:\n  - {ends: [b, 'a:x'], rate: 10Mbit}\n"
	top := mustParse(t, "lab.yaml", []byte(file))
	sent := throughJSON(t, top)
	sent.Links[0].Rate = "fast"
	_, found := Resolve(sent, nil)
	if len(found) != 1 || found[0].Line != 0 || found[0].Path != "links[0].rate" {
		t.Fatalf("got %+v", found)
	}
	located := Locate(top, found)[0]
	if located.File != "lab.yaml" || located.Line != 6 || located.Column != 30 ||
		located.Text != "  - {ends: [b, 'a:x'], rate: 10Mbit}" {
		t.Errorf("got %+v", located)
	}
	if bare := found.Error(); !strings.HasPrefix(bare, `links[0].rate: rate: "fast" is not a rate`) {
		t.Errorf("got %s", bare)
	}
}
