package yamltree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testLimits = Limits{Bytes: 1 << 20, Marks: 100_000, Depth: 20, Merged: 1000}

// mustRead reads a file of one document in which nothing is wrong.
func mustRead(t *testing.T, text string) *Node {
	t.Helper()
	documents, problems := Read([]byte(text), testLimits)
	if len(documents) != 1 || len(problems) > 0 {
		t.Fatalf("%d documents, problems %v", len(documents), problems)
	}
	return documents[0]
}

// outline writes a tree with its positions.
func outline(n *Node) string {
	var parts []string
	for _, item := range n.Items {
		parts = append(parts, outline(item))
	}
	for _, e := range n.Entries {
		parts = append(parts, fmt.Sprintf("%d:%d %s=%s", e.Line, e.Column, e.Key, outline(e.Value)))
	}
	switch n.Kind {
	case List:
		return fmt.Sprintf("%d:%d[%s]", n.Line, n.Column, strings.Join(parts, ", "))
	case Map:
		return fmt.Sprintf("%d:%d{%s}", n.Line, n.Column, strings.Join(parts, ", "))
	case Null:
		return fmt.Sprintf("%d:%d null", n.Line, n.Column)
	default:
		return fmt.Sprintf("%d:%d %q", n.Line, n.Column, n.Text)
	}
}

func TestTreeHasTextAndPosition(t *testing.T) {
	for text, want := range map[string]string{
		"a: 007\nb:\n  - 1.20\n  - 'x y'\n": `1:1{1:1 a=1:4 "007", 2:1 b=3:3[3:5 "1.20", 4:5 "x y"]}`,
		"\ufeffa: é\r\nb: |\r\n  c\r\n":     `1:1{1:1 a=1:4 "é", 2:1 b=2:4 "c\n"}`,
		"a: {é: ~, b: null, c: }": `1:1{1:1 a=1:4{1:5 é=1:8 null, 1:11 b=1:14 null, 1:20 c=1:23 ` +
			`null}}`,
		"[a:eth1, fd00::1/64, ::2, fd01::]": `1:1[1:2 "a:eth1", 1:10 "fd00::1/64", 1:22 "::2", 1:27 "fd01::"]`,
		"{a:eth1: fd00::1}":                 `1:1{1:2 a:eth1=1:10 "fd00::1"}`,
		"[a: b]":                            `1:1[1:2{1:2 a=1:5 "b"}]`,
		"x: &x {k: 1}\ny: *x\n":             `1:1{1:1 x=1:4{1:8 k=1:11 "1"}, 2:1 y=1:4{1:8 k=1:11 "1"}}`,
		"x: &x {k: 1, l: 2}\n" +
			"y: {k: 3, <<: *x}": `1:1{1:1 x=1:4{1:8 k=1:11 "1", 1:14 l=1:17 "2"}, 2:1 y=2:4{2:5 k=2:8 ` +
			`"3", 1:14 l=1:17 "2"}}`,
		"- &a {k: 1}\n- &b {k: 2}\n" +
			"- <<: [*a, *b]": `1:1[1:3{1:7 k=1:10 "1"}, 2:3{2:7 k=2:10 "2"}, 3:3{1:7 k=1:10 "1"}]`,
		"&k key: *k":                    `1:1{1:1 key=1:1 "key"}`,
		"!!str null":                    `1:1 "null"`,
		"---\n---\na\n---\n# nothing\n": `3:1 "a"`,
		"\"<<\": a":                     `1:1{1:1 <<=1:7 "a"}`,
		"[&a fd00::, *a]":               `1:1[1:2{1:2 fd00:=1:10 null}, 1:2 "fd00:"]`,
	} {
		if diff := cmp.Diff(want, outline(mustRead(t, text))); diff != "" {
			t.Errorf("%q (-want +got)\n%s", text, diff)
		}
	}
}

func TestBoolIsAnUnquotedTrueOrFalse(t *testing.T) {
	root := mustRead(t, "[true, False, 'true', yes, 1]")
	var got []string
	for _, item := range root.Items {
		value, ok := item.Bool()
		got = append(got, fmt.Sprint(value, ok))
	}
	if diff := cmp.Diff([]string{"true true", "false true", "false false", "false false", "false false"},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestProblemsHavePlaceAndAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n\tb:\n": "2:1 not YAML: found character '\t' that cannot start any token (YAML indents by " +
			"spaces, not by tabs)",
		"a: @b": "1:4 not YAML: found character '@' that cannot start any token " +
			"(put the text in quotes)",
		"a: [b\nc: d\n": "2:2 not YAML: did not find expected ',' or ']' (the [ in line 1 is not closed)",
		"a: {b: c\n":    "1:4 not YAML: did not find expected ',' or '}'",
		"a:\n  b: 'c\n": "2:6 not YAML: found unexpected end of stream",
		"a: b: " +
			"c": `1:5 not YAML: mapping values are not allowed in this context (a text that holds ": " ` +
			`needs quotes)`,
		"{a:[b]}": "1:4 not YAML: did not find expected ',' or '}' (write a blank after the colon)",
		"{a: fd00::, b: c}": "1:10 not YAML: did not find expected ',' or '}' " +
			`(a text with ": " in it, or a colon at its end, needs quotes)`,
		"a: *b":                  "1:4 alias without an anchor",
		"a: \x01":                "1:4 control character 0x01 (save the file as UTF-8 text)",
		"a: \u0090":              "1:4 control character 0x90 (save the file as UTF-8 text)",
		"a: \ufeff":              "1:4 character U+FEFF (save the file as UTF-8 text)",
		"a: é\xe9":               "1:5 byte 0xe9 is not UTF-8 (save the file as UTF-8 text)",
		"a: 1\nb: 2\na: 3\n":     `3:1 key "a" is written twice (it stands in line 1 already)`,
		"{[a]: b}":               "1:2 a key is a single value, not a list (a text in braces needs quotes)",
		"a: {<<: b}":             "1:9 a merge key wants a map or a list of maps (write <<: *name)",
		"a: &a {<<: *a}":         "1:4 " + tooMuch,
		"a: &a [{<<: *a}]":       "1:4 " + tooMuch,
		strings.Repeat("[", 50):  "1:21 nested deeper than 20 levels",
		strings.Repeat("- ", 50): "1:41 nested deeper than 20 levels",
		strings.Repeat(",", 1e5+1): "0:0 the file has 100001 line ends, commas, colons, dashes and brackets; " +
			"at most 100000 are read",
		strings.Repeat("a", 2<<20): "0:0 the file has 2 MiB; at most 1 are read",
	} {
		_, problems := Read([]byte(text), testLimits)
		if len(problems) != 1 {
			t.Errorf("%.40q has the problems %v", text, problems)
			continue
		}
		p := problems[0]
		got := fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Message)
		if p.Hint != "" {
			got += " (" + p.Hint + ")"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q (-want +got)\n%s", text, diff)
		}
	}
}

func TestMergedEntriesAreBounded(t *testing.T) {
	text := "x: &x\n"
	for i := range 100 {
		text += fmt.Sprintf("  k%d: v\n", i)
	}
	text += "y:\n" + strings.Repeat("  - <<: *x\n", 20)
	documents, problems := Read([]byte(text), testLimits)
	if len(documents) != 1 || len(problems) != 1 || problems[0].Message != tooMuch {
		t.Errorf("%d documents, problems %v", len(documents), problems)
	}
}

func TestBombsAreFoundWithoutExpandingThem(t *testing.T) {
	bomb := "- &a0 [x, x, x, x]\n"
	for i := 1; i < 50; i++ {
		bomb += fmt.Sprintf("- &a%d [*a%d, *a%d]\n", i, i-1, i-1)
	}
	for text, want := range map[string]string{
		"- &a [x, x]\n- [*a, *a]\n- [*a, *a]\n": "",
		"- &a [*a]\n":                           "1:3",
		"- &a {b: {c: *a}}\n":                   "1:10",
		bomb:                                    "9:3",
	} {
		got := ""
		if p := mustRead(t, text).Bomb(1000, 100); p != nil {
			got = fmt.Sprintf("%d:%d", p.Line, p.Column)
		}
		if got != want {
			t.Errorf("%.40q is a bomb at %q, want %q", text, got, want)
		}
	}
	if p := mustRead(t, "- &a [x]\n- &b [*a]\n- &c [*b]\n- [*c]\n").Bomb(1000, 4); p == nil {
		t.Error("depth is not bounded")
	}
}

// FuzzRead wants no file to crash the reader, and every node of a tree to be there.
func FuzzRead(f *testing.F) {
	f.Add([]byte("a: &a {<<: *b, ? c : !!map {}}\n- [fd00::, x: y]\n# c\n"))
	f.Add([]byte("&a a: *a\n? |\n  b\n: > \n c\n---\n...\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, problems := Read(data, testLimits)
		if documents == nil && len(problems) == 0 {
			t.Fatal("nothing is read and nothing is wrong")
		}
		for _, d := range documents {
			if d.Bomb(10_000, 50) == nil {
				_ = outline(d)
			}
		}
	})
}
