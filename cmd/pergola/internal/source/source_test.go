package source

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/topology"
)

// files makes a directory with these files in it, and works there.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return dir
}

func TestFindTakesPergolaYAMLOrTheOnlyTopology(t *testing.T) {
	for _, c := range []struct {
		name        string
		files       []string
		want, fails string
	}{
		{"nothing", []string{"README.md"}, "", "there is no topology file here"},
		{"one", []string{"lab.clab.yml", "notes.txt"}, "lab.clab.yml", ""},
		{"many", []string{"a.yaml", "b.graphml"}, "", "there are 2 topology files here and none is pergola.yaml"},
		{"the usual", []string{"a.yaml", "pergola.yaml"}, "pergola.yaml", ""},
		{"hidden", []string{".golangci.yml", "a.yaml"}, "a.yaml", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := map[string]string{}
			for _, f := range c.files {
				content[f] = ""
			}
			files(t, content)
			got, err := Find(".")
			if got != c.want || (err == nil) != (c.fails == "") ||
				err != nil && !strings.HasPrefix(err.Error(), c.fails) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

const lab = `name: lab
nodes:
  a: {kind: router, config: [a/frr.conf]}
  b: {rootfs: image.tar, binds: ["data:/data"]}
links:
- [a, b]
`

func TestLoadReadsWhatTheTopologyNames(t *testing.T) {
	dir := files(t, map[string]string{"net/lab.yaml": lab, "net/a/frr.conf": "hostname a\n",
		"net/image.tar": "archive"})
	s, err := Load(t.Context(), "net/lab.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Topology.Nodes["a"].Config["frr.conf"].Data); got != "hostname a\n" {
		t.Errorf("configuration is %q", got)
	}
	if diff := cmp.Diff(topology.Strings{filepath.Join(dir, "net/data") + ":/data"},
		s.Topology.Nodes["b"].Binds); diff != "" {
		t.Error(diff)
	}
	store := blobs{}
	p := ui.New(nil, io.Discard, io.Discard).Progress()
	for range 2 { // the second time there is nothing to send
		if err := s.Upload(t.Context(), store, p); err != nil {
			t.Fatal(err)
		}
	}
	if got := store[s.Topology.Nodes["b"].Rootfs.SHA256]; got != "archive" || len(store) != 1 {
		t.Errorf("the server has %v", store)
	}
}

type blobs map[string]string

func (b blobs) HasBlob(_ context.Context, sum string) (bool, error) { return b[sum] != "", nil }

func (b blobs) PutBlob(_ context.Context, sum string, _ int64, r io.Reader) error {
	if b[sum] != "" {
		return errors.New("sent twice")
	}
	data, err := io.ReadAll(r)
	b[sum] = string(data)
	return err
}

func TestLoadSaysWhereAMissingFileIsNamed(t *testing.T) {
	files(t, map[string]string{"lab.yaml": lab, "image.tar": ""})
	_, err := Load(t.Context(), "", Options{})
	var found topology.Diagnostics
	if !errors.As(err, &found) || len(found) != 1 || found[0].Line != 3 ||
		!strings.Contains(found[0].Message, "a/frr.conf") {
		t.Errorf("got %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	files(t, map[string]string{"lab.yaml": "name: lab\nnodes: [a, b]\n" +
		"links:\n- [a, b]\n", "net.graphml": "<graphml/>"})
	for _, c := range []struct {
		file  string
		o     Options
		fails string
	}{
		{"none.yaml", Options{}, "there is no file none.yaml"},
		{"lab.yaml", Options{daemon: "frr"}, "are for GraphML files"},
		{"lab.yaml", Options{tables: []string{"t.yaml"}}, "--image and --images are for containerlab files"},
		{"lab.yaml", Options{images: []string{"a=b"}}, "--image and --images are for containerlab files"},
		{"net.graphml", Options{daemon: "quagga"}, `no routing suite "quagga"`},
		{"net.graphml", Options{routing: []string{"opsf"}}, `no protocol "opsf"`},
	} {
		if _, err := Load(t.Context(), c.file, c.o); err == nil || !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %v, want %s", c.file, err, c.fails)
		}
	}
}

func TestNameOfAFileIsTheNetworkInIt(t *testing.T) {
	files(t, map[string]string{"x.yaml": "name: lab\nnodes: [a]\n"})
	for word, want := range map[string]string{"x.yaml": "lab", "other": "other", "": ""} {
		if got, err := NameOf(word); got != want || err != nil {
			t.Errorf("%q: got %q, %v", word, got, err)
		}
	}
	if _, err := NameOf("y.yaml"); err == nil {
		t.Error("a file that does not exist is a name")
	}
	if got := Described("."); got != "lab" {
		t.Errorf("the directory describes %q", got)
	}
}

func TestImagesComeFromATable(t *testing.T) {
	files(t, map[string]string{
		"lab.clab.yml": "name: lab\ntopology:\n  nodes:\n    a: {kind: linux, image: mylab/thing:1}\n",
		"images.yaml":  "images:\n- {match: mylab/*, rootfs: host}\n",
		"wrong.yaml":   "images:\n- {mach: mylab/*, rootfs: host}\n",
	})
	s, err := Read("lab.clab.yml", Options{tables: []string{"images.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Encode(false)
	if err != nil || strings.Contains(string(text), "mylab") {
		t.Errorf("the table was not used: %s, %v", text, err)
	}
	if _, err := Read("lab.clab.yml", Options{tables: []string{"wrong.yaml"}}); err == nil ||
		!strings.Contains(err.Error(), "wrong.yaml:2:") {
		t.Errorf("a wrong table: %v", err)
	}
}
