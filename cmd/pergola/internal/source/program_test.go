package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// goodObject is a packet program that may run.
func goodObject(t *testing.T) []byte {
	t.Helper()
	object, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "control", "programs", "testdata", "post.o"))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// faults loads a topology, and gives what is wrong with it, one a line.
func faults(t *testing.T, path string) string {
	t.Helper()
	s, err := Load(t.Context(), path, Options{})
	if err == nil {
		_, err = s.Resolve()
	}
	var found topology.Diagnostics
	if err != nil && !errors.As(err, &found) {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range found {
		d.Text = ""
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
}

func TestLoadReadsProgramsAndChecksThem(t *testing.T) {
	object := goodObject(t)
	dir := files(t, map[string]string{
		"lab.yaml": "name: lab\ngroups:\n  offices: {program: bin/post.o}\nnodes:\n" +
			"  a: {group: offices, filters: all.txt}\n  b: {group: offices, filters: [any -> drop]}\n",
		"all.txt":      "# all\narea=1 -> drop\n",
		"bin/post.o":   string(object),
		"text.o":       "no object",
		"large.o":      strings.Repeat("x", slice.MaxObject+1),
		"text.yaml":    "nodes:\n  a: {program: text.o}\n",
		"large.yaml":   "nodes:\n  a: {program: large.o}\n",
		"missing.yaml": "nodes:\n  a: {program: none.c}\n",
		"filter.yaml":  "nodes:\n  a:\n    program: bin/post.o\n    filters: [\"aera=1 -> drop\"]\n",
		"dir.yaml":     "nodes:\n  a: {program: bin}\n",
	})
	s, err := Load(t.Context(), "lab.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if p := resolved.Node("a").Program; p.Object != slice.ObjectName(object) || len(p.Filters) != 1 ||
		len(resolved.Programs) != 1 {
		t.Errorf("%+v, and %d programs", p, len(resolved.Programs))
	}
	for file, want := range map[string]string{
		"text.yaml":    "text.yaml:2:16: text.o: is no object file",
		"large.yaml":   "large.yaml:2:16: " + dir + "/large.o has 262145 bytes: a packet program may",
		"missing.yaml": "missing.yaml:2:16: there is no file " + dir + "/none.c",
		"dir.yaml":     "dir.yaml:2:16: " + dir + "/bin is a directory: name an object, or a C file",
		"filter.yaml": `filter.yaml:4:5: filter "aera=1 -> drop": the key has no field "aera"; ` +
			`it has area, station`,
	} {
		if got := faults(t, file); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// A C file is compiled once, however many nodes name it, and what the compiler says is part of the error.
func TestLoadCompilesPrograms(t *testing.T) {
	dir := files(t, map[string]string{
		"lab.yaml": "nodes:\n  a: {program: x.c}\n  b: {program: x.c}\n",
		"x.c":      "int",
		"post.o":   string(goodObject(t)),
		"bin/clang": "#!/bin/sh\necho compiled >>\"$(dirname \"$0\")/calls\"\n" +
			"[ -e \"$(dirname \"$0\")/fails\" ] && " +
			"{ echo \"x.c:1:1: error: what is this?\" >&2; exit 1; }\n" +
			"while [ \"$1\" != -o ]; do shift; done\ncp \"$(dirname \"$0\")/../post.o\" \"$2\"\n",
	})
	t.Setenv("PATH", filepath.Join(dir, "empty"))
	if got, want := faults(t, "lab.yaml"), "lab.yaml:2:16: there is no clang, which compiles programs: "+
		"install it (apt install clang)"; !strings.HasPrefix(got, want) {
		t.Errorf("without a compiler: %q", got)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":/usr/bin:/bin")
	if err := os.Chmod("bin/clang", 0o755); err != nil {
		t.Fatal(err)
	}
	if got := faults(t, "lab.yaml"); got != "" {
		t.Errorf("compiled: %s", got)
	}
	if calls, err := os.ReadFile("bin/calls"); string(calls) != "compiled\n" {
		t.Errorf("the compiler was called so: %q, %v", calls, err)
	}
	if err := os.WriteFile("bin/fails", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := faults(t, "lab.yaml")
	for _, want := range []string{
		"lab.yaml:2:16: compile " + dir + "/x.c: the compiler refuses it:", "x.c:1:1: error: what is this?",
		"lab.yaml:3:16: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said: %s", want, got)
		}
	}
}
