package program

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// A topology's program is compiled by each `up`: what has not changed must not look as if it had.
func TestEqualSourcesMakeEqualObjects(t *testing.T) {
	source := filepath.Join(testkit.ModuleRoot(t), "examples", "programs", "ipv4.c")
	var objects [][]byte
	for range 2 {
		t.Chdir(t.TempDir())
		object, err := Build(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	if !bytes.Equal(objects[0], objects[1]) {
		t.Error("two objects of one source differ")
	}
}
