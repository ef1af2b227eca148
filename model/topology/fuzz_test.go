package topology

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse wants no file to crash the reader, and every right file to survive writing and to resolve, or to say why
// not.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"../../examples/*.yaml", "testdata/resolve/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("nodes: {a: &x {<<: *x, cpu: .5}, ? b : !!map {}}\nlinks: [[a, b:'eth1']]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		top, found := Parse("fuzz.yaml", data)
		_ = found.Error()
		if len(found) > 0 {
			return
		}
		for _, source := range top.Sources() {
			source.Data = []byte{}
		}
		written, err := Marshal(top)
		if err != nil {
			t.Fatal(err)
		}
		again := mustParse(t, "fuzz.yaml", written)
		for _, source := range again.Sources() {
			source.Data = []byte{}
		}
		if diff := cmp.Diff(top, again, sameTopology); diff != "" {
			t.Fatalf("writing changes it:\n%s\n%s", diff, written)
		}
		if s, found := Resolve(top, nil); len(found) == 0 {
			if _, found := Resolve(top, s); len(found) > 0 {
				t.Fatal(found.Error())
			}
		}
	})
}
