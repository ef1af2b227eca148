package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// TestPicturesOfExamplesAreDrawn compares the picture in each page of docs/examples with what `pergola graph --mermaid`
// draws of the first file that the page names.
func TestPicturesOfExamplesAreDrawn(t *testing.T) {
	pages, err := filepath.Glob("../../docs/examples/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	picture := regexp.MustCompile("(?s)```mermaid\n(.*?)```")
	file := regexp.MustCompile(`\((?:\.\./)+(examples/[\w/-]+\.yaml)\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(page) == "README.md" {
			continue
		}
		of := file.FindSubmatch(text)
		if of == nil {
			t.Errorf("%s links to no example", page)
			continue
		}
		var out, said bytes.Buffer
		args := []string{"graph", "--mermaid", "../../" + string(of[1])}
		if code := run(t.Context(), args, ui.New(strings.NewReader(""), &out, &said)); code != 0 {
			t.Errorf("pergola %s: status %d\n%s", strings.Join(args, " "), code, said.String())
			continue
		}
		at := picture.FindSubmatchIndex(text)
		switch {
		case at == nil:
			t.Errorf("%s has no picture", page)
		case string(text[at[2]:at[3]]) == out.String():
		case *update:
			text = append(text[:at[2]:at[2]], append(out.Bytes(), text[at[3]:]...)...)
			if err := os.WriteFile(page, text, 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the picture of %s is another one (make generate draws it):\n%s", page, out.String())
		}
	}
}
