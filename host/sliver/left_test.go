package sliver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLeftNamesSlicesOfAnEndedServer(t *testing.T) {
	dir := t.TempDir()
	if names, err := Left(dir); err != nil || len(names) > 0 {
		t.Fatalf("an empty state directory has %v, %v; want none", names, err)
	}
	for id, record := range map[string]string{"2": `{"name":"ring"}`, "7": `{"name":"abilene"}`, "9": ""} {
		if err := os.MkdirAll(filepath.Join(dir, "slices", id), 0o700); err != nil {
			t.Fatal(err)
		}
		if record == "" {
			continue
		}
		name := filepath.Join(dir, "slices", id, "slice.json")
		if err := os.WriteFile(name, []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := Left(dir); err != nil || !slices.Equal(names, []string{"abilene", "ring"}) {
		t.Errorf("found %v, %v; want abilene and ring", names, err)
	}
	broken := filepath.Join(dir, "slices", "9", "slice.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := Left(dir); err == nil {
		t.Errorf("a broken record gives %v; want an error", names)
	}
}
