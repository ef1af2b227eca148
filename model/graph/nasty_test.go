package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"
	"gonum.org/v1/gonum/graph/formats/dot"
	"gonum.org/v1/gonum/graph/formats/dot/ast"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// nasty makes names that validation would refuse, but that a page or a terminal must survive all the same.
func nasty(t *rapid.T) *slice.Slice {
	parts := []string{"<script>alert(1)</script>", "</script>", "]]>", `"`, "'", "`", "\\", "\x1b[2J", "\x00", "\n",
		"\u202e",
		"--", "%%{init}%%", "end", "#quot;", "|", "{{.}}", "${x}", "é", "路由", "\xff", "&amp;", "-->", "<!--",
		"\u2028", "a"}
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
		b.link(slice.Shape{Rate: unit.Rate(rapid.Uint64().Draw(t, "rate")),
			Loss: rapid.Float64().Draw(t, "loss")}, ends...)
		l := &b.s.Links[len(b.s.Links)-1]
		l.Name, l.Ends[0].Interface = fmt.Sprint(name.Draw(t, "link"), len(b.s.Links)),
			name.Draw(t, "interface")
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
			if want := string([]rune(n.Name)); data.Nodes[i].Name != want {
				t.Fatalf("node %q arrives as %q", want, data.Nodes[i].Name)
			}
		}
	})
}

// parseDOT reads what DOT writes, with the parser of gonum, and counts nodes and edges.
func parseDOT(t interface{ Fatalf(string, ...any) }, s *slice.Slice) (nodes, edges int) {
	var b bytes.Buffer
	if err := DOT(&b, s, nil); err != nil {
		t.Fatalf("%v", err)
	}
	file, err := dot.ParseBytes(b.Bytes())
	if err != nil || len(file.Graphs) != 1 {
		t.Fatalf("%v in\n%s", err, &b)
	}
	ids := map[string]bool{}
	for _, statement := range file.Graphs[0].Stmts {
		switch statement := statement.(type) {
		case *ast.NodeStmt:
			ids[statement.Node.ID] = true
		case *ast.EdgeStmt:
			edges++
		}
	}
	return len(ids), edges
}

func TestDOTIsWellFormedForAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nasty(t)
		p := newPicture(s, nil)
		if nodes, edges := parseDOT(t, s); nodes != len(p.vertices) || edges != len(p.edges) {
			t.Fatalf("%d nodes and %d edges, want %d and %d", nodes, edges, len(p.vertices), len(p.edges))
		}
	})
}

func TestDOTTellsNamesWithEscapesApart(t *testing.T) {
	b := build(`a"b\`)
	for _, n := range []string{`\`, `\\`, `"`, `\"`, `\N`, `<b>`, "a\nb", "a\tb", "graph", "", "&lt;"} {
		b.node(slice.Router, n)
	}
	s := b.link(slice.Shape{}, `\`, `"`).slice()
	if nodes, edges := parseDOT(t, s); nodes != len(s.Nodes) || edges != 1 {
		t.Errorf("%d nodes and %d edges", nodes, edges)
	}
}

var mermaidLine = regexp.MustCompile(
	`^(?:flowchart LR|  %% [^{}]*|  n\d+(?:\[T\]|\[\[T\]\]|\{\{T\}\}|\(\(T\)\)|\(\[T\]\))|` +
		`  n\d+ (?:---|-\.-)\|T\| n\d+)$`)
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
