package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// inside are words of the code for which users have others: a network, a node.
var inside = regexp.MustCompile(`(?i)\b(slices?|slivers?)\b`)

// TestHelpUsesTheWordsOfUsers: see docs/words.md.
func TestHelpUsesTheWordsOfUsers(t *testing.T) {
	for _, c := range commands(quietRoot()) {
		text := strings.Join([]string{c.UseLine(), c.Short, c.Long, c.Example}, "\n")
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				text += "\n--" + f.Name + " " + f.Usage
			}
		})
		if word := inside.FindString(text); word != "" {
			t.Errorf("pergola %s --help says %q", c.Name(), word)
		}
	}
}

// TestMessagesUseTheWordsOfUsers reads the texts of all code that words messages: those with a blank in them. What
// describes the API and the metrics uses the API's words.
func TestMessagesUseTheWordsOfUsers(t *testing.T) {
	texts := 0
	for _, room := range []string{"cmd/pergola", "control", "host", "kernel", "model"} {
		dir := filepath.Join("../..", room)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, isLiteral := n.(*ast.BasicLit)
				if !isLiteral {
					return !describesAPI(n)
				}
				text, err := strconv.Unquote(lit.Value)
				if lit.Kind != token.STRING || err != nil || !strings.Contains(text, " ") ||
					strings.Contains(text, " /v1/") {
					return true
				}
				texts++
				if word := inside.FindString(text); word != "" {
					t.Errorf("%v: a message says %q: %s", files.Position(lit.Pos()), word,
						lit.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 1000 {
		t.Errorf("only %d texts were read", texts)
	}
}

// describesAPI reports whether a part of the code is a tag, which is no message, or words the API or a metric.
func describesAPI(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.StructType, *ast.ImportSpec:
		return true
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			return f.Name == "describe" || f.Name == "desc"
		case *ast.SelectorExpr:
			return f.Sel.Name == "NewDesc"
		}
	case *ast.KeyValueExpr:
		key, _ := n.Key.(*ast.Ident)
		return key != nil && (key.Name == "Summary" || key.Name == "Description")
	}
	return false
}

// TestDocumentsUseTheWordsOfUsers reads what stands outside of code, in documents that are not about the code itself.
func TestDocumentsUseTheWordsOfUsers(t *testing.T) {
	pages := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/cli/*.md", "../../docs/examples/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\*slice\\*")
	aboutCode := map[string]bool{"words.md": true, "benchmarks.md": true}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if aboutCode[filepath.Base(page)] {
			continue
		}
		for line := range strings.Lines(code.ReplaceAllString(string(text), "")) {
			if regexp.MustCompile(`(?i)\bslices?\b`).MatchString(line) {
				t.Errorf("%s: %s", page, strings.TrimSpace(line))
			}
		}
	}
	if len(pages) < 60 {
		t.Errorf("only %d pages were read", len(pages))
	}
}
