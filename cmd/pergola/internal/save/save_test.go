package save

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// running is a network as a server tells of it.
func running(t *testing.T, text string) *api.Slice {
	t.Helper()
	top, found := topology.Parse("lab.yaml", []byte(text))
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	s, found := topology.Resolve(top, nil)
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	return &api.Slice{Spec: s}
}

func compose(t *testing.T, s *api.Slice, changes ...api.NodeChanges) (*Saved, *slice.Slice) {
	t.Helper()
	saved, err := Compose(s, changes)
	if err != nil {
		t.Fatal(err)
	}
	again, found := topology.Resolve(saved.Topology, nil)
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	return saved, again
}

const systems = `
name: lab
nodes:
  core: {routing: [ospf, bgp], as: 65001}
  edge: {routing: [ospf, bgp], as: 65001}
  far: {routing: [ospf, bgp], as: 65001}
  other: {as: 65002}
links: [[core, edge], [core, far], [edge, other]]
`

func TestOnlyChangedRoutersGetConfigurationsOfTheirOwn(t *testing.T) {
	s := running(t, "name: lab\nnodes: {a: {routing: ospf}, b: {daemon: bird}, c: {routing: ospf}}\n"+
		"links: [[a, b], [b, c]]\n")
	saved, again := compose(t, s, api.NodeChanges{Node: "a", Routing: true,
		Config: map[string][]byte{"frr.conf": []byte("router ospf\n"), "daemons": []byte("ospfd=yes\n")}})
	for _, n := range again.Nodes {
		if own := len(n.Routing.Config) > 0; own != (n.Name == "a") {
			t.Errorf("%s has a configuration of its own: %t", n.Name, own)
		}
	}
	if string(again.Node("a").Routing.Config["frr.conf"]) != "router ospf\n" {
		t.Errorf("a has %q", again.Node("a").Routing.Config)
	}
	if want := []string{"node a: its routing configuration"}; !slices.Equal(saved.Changed, want) {
		t.Errorf("changed: %q", saved.Changed)
	}
}

// What Pergola configures in a border router names what its AS-mates originate: of one with a configuration of its own,
// that is not known.
func TestRoutersThatFollowFromAChangedOneStayAsTheyAre(t *testing.T) {
	s := running(t, systems)
	saved, again := compose(t, s, api.NodeChanges{Node: "far", Routing: true,
		Config: map[string][]byte{"frr.conf": []byte("router bgp 65001\n")}})
	edge := again.Node("edge").Routing.Config
	if !strings.Contains(string(edge["frr.conf"]), "router bgp 65001") {
		t.Fatalf("edge is configured by Pergola, without far's networks: %q", edge)
	}
	if !slices.Contains(saved.Changed, "node edge: as it was configured, which followed from other nodes") {
		t.Errorf("it says %q", saved.Changed)
	}
	if own := again.Node("other").Routing.Config; len(own) > 0 {
		t.Errorf("other has a configuration of its own: %q", own)
	}
}

func TestShapesAndFilesThatWereSetByHandAreSaved(t *testing.T) {
	s := running(t, "name: lab\nnodes: {a: {files: {/etc/motd: {content: x, mode: \"0600\"}}}, b: }\n"+
		"links: [[a, b]]\n")
	s.Overrides = slice.Overrides{
		Shapes: map[string]slice.Shape{"a:eth1": {Rate: 1e6, Delay: 20 * time.Millisecond}},
		Power:  map[string]slice.Power{"b": slice.PowerOff},
		Down:   map[string]bool{"a:eth1--b:eth1": true},
	}
	large := bytes.Repeat([]byte("x"), 1000)
	saved, again := compose(t, s, api.NodeChanges{Node: "a", Files: []slice.File{
		{Path: "/etc/motd", Mode: 0o600, Data: []byte("y")},
		{Path: "/etc/new/file", Mode: 0o755, Data: large}}})
	ends := again.Links[0].Ends
	got := ends[0].Shape
	if got.Rate != 1e6 || got.Delay != 20*time.Millisecond || ends[1].Shape.Rate != 0 {
		t.Errorf("the link is %+v", ends)
	}
	files := again.Node("a").Files
	if len(files) != 2 || string(files[0].Data) != "y" || files[0].Mode != 0o600 ||
		!bytes.Equal(files[1].Data, large) || files[1].Mode != 0o755 {
		t.Errorf("the files are %+v", files)
	}
	if len(saved.Beside) != 2 || len(saved.Changed) != 3 {
		t.Errorf("changed %q, not saved %q", saved.Changed, saved.Beside)
	}
}

// archives has one archive, or none.
type archives []byte

func (a archives) GetBlob(_ context.Context, _ string, to io.Writer) error {
	if a == nil {
		return errors.New("only root may fetch archives")
	}
	_, err := to.Write(a)
	return err
}

func written(t *testing.T, saved *Saved, dir string, replace bool) {
	t.Helper()
	if _, err := saved.Write(t.Context(), dir, replace, archives(nil)); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryIsReadAgain(t *testing.T) {
	s := running(t, systems)
	saved, again := compose(t, s, api.NodeChanges{Node: "far", Routing: true,
		Config: map[string][]byte{"frr.conf": []byte("router bgp 65001\n")}})
	dir := filepath.Join(t.TempDir(), "saved")
	written(t, saved, dir, false)
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	read, found := topology.Parse(FileName, text)
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	for _, f := range read.Sources() {
		if f.Data, err = os.ReadFile(filepath.Join(dir, f.Path)); err != nil {
			t.Fatal(err)
		}
	}
	s2, found := topology.Resolve(read, nil)
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	for i := range again.Nodes {
		for name, data := range again.Nodes[i].Routing.Config {
			if got := s2.Nodes[i].Routing.Config[name]; !bytes.Equal(got, data) {
				t.Errorf("%s of %s is %q, was %q", name, again.Nodes[i].Name, got, data)
			}
		}
	}
}

func TestDirectoriesAreReplacedOnlyWhereAsked(t *testing.T) {
	saved, _ := compose(t, running(t, "name: lab\nnodes: [a]\n"))
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	written(t, saved, dir, false)
	if _, err := saved.Write(t.Context(), dir, false, archives(nil)); !errors.Is(err, ErrExists) {
		t.Errorf("an earlier save is replaced: %v", err)
	}
	written(t, saved, dir, true)
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := saved.Write(t.Context(), dir, true, archives(nil)); !errors.Is(err, ErrExists) {
		t.Errorf("a directory with something else in it is replaced: %v", err)
	}
	empty := filepath.Join(parent, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	written(t, saved, empty, false)
	t.Chdir(empty)
	if _, err := saved.Write(t.Context(), ".", true, archives(nil)); err == nil ||
		!strings.Contains(err.Error(), "it is the current directory") {
		t.Errorf("the current directory is replaced: %v", err)
	}
	link := filepath.Join(parent, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := saved.Write(t.Context(), link, true, archives(nil)); !errors.Is(err, ErrExists) {
		t.Errorf("a symbolic link is followed: %v", err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestNothingIsLeftOfASaveThatFails(t *testing.T) {
	s := running(t, "name: lab\nnodes: {a: {files: {/etc/x: {content: x}}}}\n")
	saved, _ := compose(t, s)
	n := saved.Topology.Nodes["a"]
	n.Files["/etc/x"] = topology.File{Source: &topology.Source{Path: "../outside", Data: []byte("x")}}
	parent := t.TempDir()
	if _, err := saved.Write(t.Context(), filepath.Join(parent, "saved"), false, archives(nil)); err == nil {
		t.Error("a file is written outside of the directory")
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestArchivesComeAlongWhereTheyCanBeHad(t *testing.T) {
	top, found := topology.Parse("lab.yaml", []byte("name: lab\nnodes: {a: {rootfs: a.tar}, b: {rootfs: a.tar}}\n"))
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	for _, f := range top.Sources() {
		f.SHA256 = strings.Repeat("ab", 32)
	}
	spec, found := topology.Resolve(top, nil)
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	for _, from := range []archives{nil, archives("an archive")} {
		saved, _ := compose(t, &api.Slice{Spec: spec})
		dir := filepath.Join(t.TempDir(), "saved")
		missing, err := saved.Write(t.Context(), dir, false, from)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, saved.Archives[0].Path))
		if from == nil && (len(missing) != 2 || err == nil) || from != nil && string(data) != "an archive" {
			t.Errorf("missing %q, there is %q, %v", missing, data, err)
		}
	}
}
