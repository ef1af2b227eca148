package graph

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/slice"
)

// nasty makes names that validation would refuse, but that a page or a terminal must survive all the same.
func nasty(t *rapid.T) *slice.Slice {
	parts := []string{"<script>alert(1)</script>", "</script>", "]]>", `"`, "'", "`", "\\", "\x1b[2J", "\x00", "\n", "\u202e",
		"--", "%%{init}%%", "end", "#quot;", "|", "{{.}}", "${x}", "é", "路由", "\xff", "&amp;", "-->", "<!--", "\u2028", "a"}
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 4).Draw(t, "parts"), "")
	})
	b := build(name.Draw(t, "slice"))
	b.s.Attribution = name.Draw(t, "attribution")
	names := rapid.SliceOfNDistinct(name, 1, 8, rapid.ID).Draw(t, "nodes")
	kinds := []slice.Kind{slice.Router, slice.Host, slice.Switch, slice.Uplink, "<b>"}
	for _, n := range names {
		b.node(rapid.SampledFrom(kinds).Draw(t, "kind"), n)
	}
	for range rapid.IntRange(0, 12).Draw(t, "links") {
		ends := rapid.SliceOfN(rapid.SampledFrom(names), 2, 4).Draw(t, "ends")
		b.link(slice.Shape{Rate: rapid.Uint64().Draw(t, "rate"), Loss: rapid.Float64().Draw(t, "loss")}, ends...)
		l := &b.s.Links[len(b.s.Links)-1]
		l.Name, l.Ends[0].Interface = name.Draw(t, "link"), name.Draw(t, "interface")
	}
	return &b.s
}

func TestTerminalSendsNoControlCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		width, height := rapid.IntRange(-1, 120).Draw(t, "width"), rapid.IntRange(-1, 50).Draw(t, "height")
		if err := Terminal(&b, nasty(t), nil, width, height, false); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%U in the output", r)
			}
		}
	})
}

func TestPageIsInertAgainstNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nasty(t)
		var b bytes.Buffer
		if err := HTML(&b, s, nil); err != nil {
			t.Fatal(err)
		}
		root, err := html.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		var scripts []*html.Node
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "script" {
				scripts = append(scripts, n)
			}
			if n.Type == html.ElementNode && n.Data == "b" {
				t.Fatal("a kind became markup")
			}
		}
		if len(scripts) != 2 {
			t.Fatalf("%d scripts in the page", len(scripts))
		}
		var data pageData
		if err := json.Unmarshal([]byte(scripts[0].FirstChild.Data), &data); err != nil {
			t.Fatal(err)
		}
		for i, n := range s.Nodes {
			if want := strings.ToValidUTF8(n.Name, "\uFFFD"); data.Nodes[i].Name != want {
				t.Fatalf("node %q arrives as %q", want, data.Nodes[i].Name)
			}
		}
	})
}

// quoted is one quoted string of Graphviz.
var dotLine = regexp.MustCompile(`^(?:graph Q \{|\t(?:node|edge) \[.*\];|\tlabel=Q;|\tQ \[[^\]]*\];|\tQ -- Q \[[^\]]*\];|\})$`)
var quoted = regexp.MustCompile(`"(?:[^"\\\n]|\\[\\"])*"`)

func TestDOTIsWellFormedForAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := DOT(&b, nasty(t), nil); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
			if !dotLine.MatchString(quoted.ReplaceAllString(line, "Q")) {
				t.Fatalf("not a statement: %s", line)
			}
		}
	})
}

func TestGraphvizReadsDOT(t *testing.T) {
	dot, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("graphviz is not installed; TestDOTIsWellFormedForAnyName checks the syntax")
	}
	s := nasty2()
	cmd := exec.Command(dot, "-Tplain")
	var in, diagnostics bytes.Buffer
	if err := DOT(&in, s, nil); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = &in, &diagnostics
	out, err := cmd.Output()
	if err != nil || diagnostics.Len() > 0 {
		t.Fatalf("%v: %s", err, &diagnostics)
	}
	if n := strings.Count("\n"+string(out), "\nnode "); n != len(s.Nodes) {
		t.Errorf("%d nodes, want %d:\n%s", n, len(s.Nodes), out)
	}
}

// nasty2 has names that differ in what Graphviz might read as escapes.
func nasty2() *slice.Slice {
	b := build(`a"b\`)
	for _, n := range []string{`\`, `\\`, `"`, `\"`, `\N`, `<b>`, "a\nb", "a\tb", "graph", "", "&lt;"} {
		b.node(slice.Router, n)
	}
	return b.link(slice.Shape{}, `\`, `"`).slice()
}

var mermaidLine = regexp.MustCompile(`^(?:flowchart LR|  %% [^{}]*|  n\d+(?:\[T\]|\[\[T\]\]|\{\{T\}\}|\(\(T\)\)|\(\[T\]\))|  n\d+ (?:---|-\.-)\|T\| n\d+)$`)
var mermaidQuoted = regexp.MustCompile(`"(?:[a-zA-Z0-9 .,:/%±→←—-]|#\d+;|<br/>)*"`)

func TestMermaidIsWellFormedForAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := Mermaid(&b, nasty(t), nil); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
			if !mermaidLine.MatchString(mermaidQuoted.ReplaceAllString(line, "T")) {
				t.Fatalf("not a statement: %s", line)
			}
		}
	})
}
