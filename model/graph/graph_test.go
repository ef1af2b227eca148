package graph

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

var update = flag.Bool("update", false, "write the golden files")

type writer func(io.Writer, *slice.Slice, *slice.Status) error

func terminal(width, height int, color bool) writer {
	return func(w io.Writer, s *slice.Slice, st *slice.Status) error {
		return Terminal(w, s, st, width, height, color)
	}
}

func draw(t *testing.T, write writer, s *slice.Slice, st *slice.Status) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, s, st); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	small, status := office()
	for _, test := range []struct {
		file  string
		write writer
		s     *slice.Slice
		st    *slice.Status
	}{
		{"abilene.txt", terminal(100, 30, false), abilene(), nil},
		{"abilene-list.txt", terminal(30, 30, false), abilene(), nil},
		{"office.txt", terminal(80, 24, false), small, status},
		{"office-color.txt", terminal(80, 24, true), small, status},
		{"grid.txt", terminal(100, 30, false), grid(4), nil},
		{"abilene.dot", DOT, abilene(), nil},
		{"office.dot", DOT, small, status},
		{"abilene.mmd", Mermaid, abilene(), nil},
		{"office.mmd", Mermaid, small, status},
		{"empty.txt", terminal(80, 24, false), build("empty").slice(), nil},
	} {
		t.Run(test.file, func(t *testing.T) {
			got := draw(t, test.write, test.s, test.st)
			path := filepath.Join("testdata", test.file)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("drawn otherwise than before (-want +got), run with "+
					"-update if that is right:\n%s", diff)
			}
		})
	}
}

func TestEqualSlicesAreEqualPictures(t *testing.T) {
	for range 3 {
		for name, write := range map[string]writer{"terminal": terminal(120, 40, true), "HTML": HTML,
			"DOT": DOT} {
			s, st := office()
			again, stAgain := office()
			if draw(t, write, s, st) != draw(t, write, again, stAgain) {
				t.Fatalf("%s draws the same slice in two ways", name)
			}
		}
	}
}

func TestTerminalNamesEveryNode(t *testing.T) {
	for _, s := range []*slice.Slice{abilene(), grid(6), grid(9), star(40), star(79)} {
		for _, width := range []int{20, 60, 80, 200} {
			got := draw(t, terminal(width, 40, false), s, nil)
			for _, n := range s.Nodes {
				if !strings.Contains(got, n.Name) {
					t.Errorf("%s in %d columns: %s is missing:\n%s", s.Name, width, n.Name, got)
				}
			}
		}
	}
}

func TestTerminalStaysWithinTheScreen(t *testing.T) {
	for _, size := range [][2]int{{40, 12}, {80, 24}, {132, 50}} {
		got := draw(t, terminal(size[0], size[1], false), grid(3), nil)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(lines) > size[1] {
			t.Errorf("%d lines on a screen of %d", len(lines), size[1])
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > size[0] {
				t.Errorf("%d columns on a screen of %d: %q", n, size[0], l)
			}
		}
	}
}

func TestMapAcrossTheDateLineStaysInOnePiece(t *testing.T) {
	s := build("pacific").node(slice.Router, "tokyo", 35.7, 139.7).node(slice.Router, "auckland", -36.8, 174.8).
		node(slice.Router, "honolulu", 21.3, -157.9).node(slice.Router, "seattle", 47.6, -122.3).slice()
	p := newPicture(s, nil)
	at := map[string]float64{}
	for _, v := range p.vertices {
		at[v.name] = v.at.x
	}
	if !(at["tokyo"] < at["auckland"] && at["auckland"] < at["honolulu"] && at["honolulu"] < at["seattle"]) {
		t.Errorf("not from west to east: %v", at)
	}
}

func TestNodesOnOneSpotAreMovedApart(t *testing.T) {
	b := build("city")
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		b.node(slice.Router, n, 48.1, 11.6)
	}
	p := newPicture(b.node(slice.Router, "far", 52.5, 13.4).slice(), nil)
	for i := range p.vertices {
		for j := range i {
			if a, b := p.vertices[i].at, p.vertices[j].at; (a.x-b.x)*(a.x-b.x)+(a.y-b.y)*(a.y-b.y) < 1e-4 {
				t.Errorf("%s and %s are both at %v", p.vertices[i].name, p.vertices[j].name, a)
			}
		}
	}
}

func TestShapesChangedByHandAreShown(t *testing.T) {
	s, st := office()
	st.Links["l1"] = slice.LinkStatus{Up: true, Shapes: map[string]slice.Shape{"r1:eth1": {Rate: 2_500_000_000}}}
	got := draw(t, DOT, s, st)
	if !strings.Contains(got, "→ 2.5 Gbit/s ← unshaped") {
		t.Errorf("the changed rate is missing:\n%s", got)
	}
}

func TestClassesAreNamedWithTheRate(t *testing.T) {
	s, _ := office()
	s.Links[1].Ends[0].Shape = slice.Shape{Rate: 10e6, Classes: []slice.Class{{Name: "voice"}, {Name: "other"}}}
	const want = "→ 10 Mbit/s, classes voice other ← 10 Mbit/s, 20 ms"
	for name, f := range map[string]writer{"DOT": DOT, "Mermaid": Mermaid, "HTML": HTML} {
		if got := draw(t, f, s, nil); !strings.Contains(got, want) {
			t.Errorf("%s: the classes are missing:\n%s", name, got)
		}
	}
}

func TestDurationHasThreeDigits(t *testing.T) {
	for in, want := range map[time.Duration]string{0: "0 ms", 1276 * time.Microsecond: "1.28 ms",
		10528 * time.Microsecond:   "10.5 ms",
		999_900 * time.Microsecond: "1000 ms", 20 * time.Millisecond: "20 ms", 50 * time.Microsecond: "0.05 ms",
		3 * time.Second: "3s", 7: "7ns"} {
		if got := duration(in); got != want {
			t.Errorf("%v is written %s, want %s", in, got, want)
		}
	}
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	got := draw(t, HTML, abilene(), nil)
	for _, outside := range []string{" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("} {
		if strings.Contains(got, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	for address, known := range map[string]int{
		"http://": strings.Count(got, "http://www.w3.org/2000/svg"), "https://": 0,
	} {
		if strings.Count(got, address) > known {
			t.Errorf("the page names %s", address)
		}
	}
}

func TestAutonomousSystemsAreNamed(t *testing.T) {
	s := build("bgp").node(slice.Router, "edge").node(slice.Router, "own").node(slice.Host, "pc").
		link(slice.Shape{}, "edge", "own").link(slice.Shape{}, "edge", "pc").slice()
	// The other router has a configuration of its own: its system is known by its neighbour's.
	s.Node("edge").Routing = &slice.Routing{Daemon: slice.FRR, BGP: &slice.BGPNode{AS: 65001,
		Neighbors: []slice.BGPNeighbor{{Node: "own", AS: 65002}}}}
	s.Node("own").Routing = &slice.Routing{Daemon: slice.FRR, Config: map[string][]byte{"frr.conf": nil}}
	for name, test := range map[string]struct {
		write writer
		want  []string
	}{
		"terminal": {terminal(80, 24, false), []string{"edge (AS 65001)", "own (AS 65002)", "pc"}},
		"list":     {terminal(30, 24, false), []string{"● edge (AS 65001)\n", "● own (AS 65002)\n", "■ pc\n"}},
		"DOT":      {DOT, []string{`label="edge\nAS 65001"`, `label="own\nAS 65002"`, `label="pc"`}},
		"Mermaid":  {Mermaid, []string{`"edge<br/>AS 65001"`, `"own<br/>AS 65002"`, `"pc"`}},
		"HTML":     {HTML, []string{`"name":"edge","kind":"router","as":65001,`, `"as":65002,`}},
	} {
		got := draw(t, test.write, s, nil)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is missing:\n%s", name, want, got)
			}
		}
	}
}
