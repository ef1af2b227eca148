package importer

import (
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// graphML makes a small file of the Zoo's form. Nodes are id|label|lat|long|internal|hyperedge, edges a|b|rate.
func graphML(edgeDefault string, nodes, edges []string) []byte {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" for="node" id="l"/><key attr.name="Latitude" for="node" id="y"/>
<key attr.name="Longitude" for="node" id="x"/>
<key attr.name="Internal" for="node" id="i"/><key attr.name="hyperedge" for="node" id="h"/>
<key attr.name="LinkSpeedRaw" for="edge" id="r"/>
<graph edgedefault="` + edgeDefault + `">
`)
	data := func(key, value string) {
		if value != "" {
			b.WriteString(`<data key="` + key + `">` + value + `</data>`)
		}
	}
	for _, n := range nodes {
		f := append(strings.Split(n, "|"), "", "", "", "", "")
		b.WriteString(`<node id="` + f[0] + `">`)
		for i, key := range []string{"l", "y", "x", "i", "h"} {
			data(key, f[i+1])
		}
		b.WriteString("</node>\n")
	}
	for _, e := range edges {
		f := append(strings.Split(e, "|"), "", "")
		b.WriteString(`<edge source="` + f[0] + `" target="` + f[1] + `">`)
		data("r", f[2])
		b.WriteString("</edge>\n")
	}
	b.WriteString("</graph></graphml>\n")
	return []byte(b.String())
}

func zooOf(t *testing.T, data []byte, opt ZooOptions) (*topology.Topology, topology.Diagnostics) {
	t.Helper()
	top, found := Zoo("test.graphml", data, opt)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return top, found
}

func TestEverySampleOfTheZooResolves(t *testing.T) {
	files, err := filepath.Glob("testdata/zoo/*.graphml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	counts := map[string][2]int{"Abilene": {11, 14}, "AttMpls": {25, 57}, "Bellcanada": {48, 65},
		"BtNorthAmerica": {36, 76},
		"Colt":           {153, 191}, "DeutscheTelekom": {39, 62}, "Geant2009": {34, 52}, "Nsfnet": {13, 15}, "Sprint": {11, 18},
		"Surfnet": {50, 73}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, opt := range []ZooOptions{{}, {Delay: true, Rate: true}, {InternalOnly: true},
			{Daemon: slice.BIRD, Routing: []slice.Protocol{slice.OSPF}}} {
			top, found := Zoo(file, data, opt)
			if err := found.Err(); err != nil {
				t.Fatal(err)
			}
			s, found := topology.Resolve(top, nil)
			if err := found.Err(); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !strings.Contains(s.Attribution, "Internet Topology Zoo") ||
				!strings.Contains(s.Attribution, "CC BY 4.0") {
				t.Errorf("%s: attribution %q", file, s.Attribution)
			}
			want := counts[baseName(file)]
			if got := [2]int{len(s.Nodes), len(s.Links)}; !opt.InternalOnly && got != want {
				t.Errorf("%s: %d nodes and %d links, want %v", file, got[0], got[1], want)
			}
		}
	}
}

func TestImportedTopologySurvivesBeingWritten(t *testing.T) {
	data, err := os.ReadFile("testdata/zoo/Geant2009.graphml")
	if err != nil {
		t.Fatal(err)
	}
	top, _ := zooOf(t, data, ZooOptions{Delay: true, Rate: true})
	text, err := topology.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	again, found := topology.Parse("geant.yaml", text)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	want, _ := topology.Resolve(top, nil)
	got, _ := topology.Resolve(again, nil)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("read from what was written (-imported +read):\n%s", diff)
	}
}

func TestZooNamesNodesForDNS(t *testing.T) {
	top, _ := zooOf(t, graphML("undirected", []string{"0|New York", "1|New York", "2|São Paulo", "3|",
		"4|  St. John's!", "5|42", "6|new-york-2", "7|" + strings.Repeat("x", 200), "8|北京", "9|Zürich (ETH)"},
		[]string{"0|1"}), ZooOptions{})
	for _, name := range []string{"new-york", "new-york-2", "sao-paulo", "n3", "st-johns", "n42", "new-york-2-2",
		strings.Repeat("x", 57), "n8", "zurich-eth"} {
		if _, ok := top.Nodes[name]; !ok {
			t.Errorf("no node %q", name)
		}
	}
	if len(top.Nodes) != 10 {
		t.Errorf("%d nodes", len(top.Nodes))
	}
	if got := top.Nodes["new-york"].Labels["label"]; got != "New York" {
		t.Errorf("label %q", got)
	}
}

func TestZooKeepsParallelLinksAndDropsLoops(t *testing.T) {
	top, found := zooOf(t, graphML("undirected", []string{"a|a", "b|b", "c|c", "d|d"},
		[]string{"a|b", "b|a", "a|a", "c|d"}), ZooOptions{})
	if len(top.Links) != 3 {
		t.Errorf("%d links, want 3: %v", len(top.Links), top.Links)
	}
	if len(found) != 1 || !found[0].Warning || found[0].Line != 14 ||
		!strings.Contains(found[0].Message, "link of a to itself") {
		t.Errorf("warnings: %v", found)
	}
}

func TestZooJoinsDirectedEdges(t *testing.T) {
	top, _ := zooOf(t, graphML("directed", []string{"a|a", "b|b", "c|c"},
		[]string{"a|b|1000000", "b|a|2000000", "b|c|3000000", "b|c|3000000"}), ZooOptions{Rate: true})
	if len(top.Links) != 3 {
		t.Fatalf("%d links, want 3: %+v", len(top.Links), top.Links)
	}
	l := top.Links[0]
	if l.Rate != "" || l.From["a"].Rate != "1Mbit" || l.From["b"].Rate != "2Mbit" {
		t.Errorf("rates %q %v", l.Rate, l.From)
	}
}

func TestZooDelayIsTheGreatCircleInFibre(t *testing.T) {
	top, _ := zooOf(t, graphML("undirected", []string{"0|New York|40.71427|-74.00597",
		"1|Chicago|41.85003|-87.65005", "2|nowhere", "3|close|41.85003|-87.65005"},
		[]string{"0|1", "0|2", "1|3"}), ZooOptions{Delay: true})
	d, err := top.Links[0].Delay.Duration()
	if err != nil || math.Abs(float64(d-5730*time.Microsecond)) > float64(30*time.Microsecond) { // 1145 km
		t.Errorf("delay %v, %v", d, err)
	}
	if top.Links[1].Delay != "" || top.Links[2].Delay != "" {
		t.Errorf("delays without distance: %q %q", top.Links[1].Delay, top.Links[2].Delay)
	}
	if got := distance(slice.Position{Latitude: 90},
		slice.Position{Latitude: -90}); math.Abs(got-math.Pi*earthRadius) > 1 {
		t.Errorf("from pole to pole: %v km", got)
	}
}

func TestZooWarnsOfWhatIsMissing(t *testing.T) {
	_, found := zooOf(t, graphML("undirected", []string{"0|a|91|0", "1|b|x|y", "2|c|1|NaN"},
		[]string{"0|1|1e30", "1|2", "0|2|-5"}), ZooOptions{Delay: true, Rate: true})
	for _, want := range []string{`latitude "91"`, `latitude "x"`, `longitude "NaN"`, `LinkSpeedRaw "1e30"`,
		`LinkSpeedRaw "-5"`, "1 link of 3 have no LinkSpeedRaw", "3 links of 3 lack coordinates"} {
		if !slices.ContainsFunc(found, func(d topology.Diagnostic) bool {
			return d.Warning &&
				strings.Contains(d.Message, want)
		}) {
			t.Errorf("no warning of %s in\n%v", want, found)
		}
	}
}

func TestZooHyperedgesAreSwitchesWithoutLoops(t *testing.T) {
	top, found := zooOf(t, graphML("undirected", []string{"a|a", "b|b", "h|cloud|||1|1", "k|vlan|||1|1"},
		[]string{"a|h", "b|k", "h|k", "k|h"}), ZooOptions{})
	if top.Nodes["cloud"].Kind != slice.Switch || top.Nodes["vlan"].Kind != slice.Switch {
		t.Errorf("kinds: %v", top.Nodes)
	}
	if len(top.Links) != 3 || len(found) != 1 || !strings.Contains(found[0].Message, "loop of switches") {
		t.Errorf("%d links, %v", len(top.Links), found)
	}
}

func TestZooLeavesOutExternalNodesOnRequest(t *testing.T) {
	file := graphML("undirected", []string{"a|a|||1", "b|b|||1", "c|peer|||0"}, []string{"a|b", "b|c"})
	all, _ := zooOf(t, file, ZooOptions{})
	inner, found := zooOf(t, file, ZooOptions{InternalOnly: true})
	if len(all.Nodes) != 3 || len(all.Links) != 2 || len(inner.Nodes) != 2 || len(inner.Links) != 1 ||
		len(found) != 0 {
		t.Errorf("all %v, inner %v, %v", all.Nodes, inner.Nodes, found)
	}
}

func TestGraphMLOfOtherTools(t *testing.T) {
	top, _ := zooOf(t, []byte(`<graphml><key id="w" for="edge" attr.name="weight"><default>1</default></key>
<graph id="G" edgedefault="undirected"><node id="n0"><port name="p"/></node>
<node id="n1"><graph id="inner"><node id="n1::n0"/></graph></node>
<edge source="n0" target="n1"/>
<hyperedge><endpoint node="n0"/><endpoint node="n1"/><endpoint node="n1::n0"/></hyperedge>
</graph></graphml>`), ZooOptions{})
	if len(top.Nodes) != 3 || len(top.Links) != 2 || !top.Links[1].LAN || len(top.Links[1].Ends) != 3 ||
		top.Attribution != "" || top.Name != "test" {
		t.Errorf("%+v", top)
	}
}

func TestBadGraphMLIsReportedWithItsPlace(t *testing.T) {
	node := `<graphml><graph><node id="a"/>`
	for name, test := range map[string]struct {
		data string
		line int
		want string
	}{
		"empty":        {"", 1, "ends early"},
		"not XML":      {"nodes:\n  a\n", 1, "text before the first element"},
		"other XML":    {"<html></html>", 1, "no GraphML"},
		"cut off":      {node + "\n<edge", 2, "not XML"},
		"unknown node": {node + "\n  <edge source='a' target='b'/></graph></graphml>", 2, `names node "b"`},
		"node twice":   {node + "\n<node id='a'/></graph></graphml>", 2, "used twice"},
		"no id":        {"<graphml><graph>\n<node/></graph></graphml>", 2, "no id"},
		"no nodes":     {"<graphml>\n</graphml>", 2, "no nodes"},
		"entity": {"<!DOCTYPE g [<!ENTITY a \"aaaa\">]>\n<graphml><graph><node id='&a;'/></graph></graphml>", 2,
			"not XML"},
		"deep":           {"<graphml>" + strings.Repeat("<graph>", 100), 1, "nested"},
		"unknown code":   {"<?xml version='1.0' encoding='klingon'?><graphml/>", 1, "not XML"},
		"too many nodes": {"<graphml><graph>" + manyNodes(100_000), 1, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			top, found := Zoo("bad.graphml", []byte(test.data), ZooOptions{})
			if top != nil || found.Err() == nil || len(found) != 1 {
				t.Fatalf("topology %v, diagnostics %v", top, found)
			}
			if d := found[0]; d.File != "bad.graphml" || d.Line != test.line || d.Column < 1 ||
				!strings.Contains(d.Message, test.want) {
				t.Errorf("got %d:%d %s", d.Line, d.Column, d)
			}
		})
	}
}

func manyNodes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`<node id="` + string(rune('a'+i%26)) + strings.Repeat("x", i%7) +
			time.Duration(i).String() + `"/>`)
	}
	return b.String()
}

func FuzzZoo(f *testing.F) {
	f.Add(graphML("directed", []string{"0|a|1|2", "1|b|3|4|0", "2|h|||1|1"},
		[]string{"0|1|1e9", "1|0", "0|0", "1|2"}), true)
	f.Add([]byte(`<graphml><graph><node id="a"/><hyperedge><endpoint node="a"/></hyperedge></graph></graphml>`),
		false)
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		top, found := Zoo("f.graphml", data, ZooOptions{Delay: all, Rate: all, InternalOnly: !all})
		if (top == nil) != (found.Err() != nil) {
			t.Fatalf("topology %v with %v", top, found)
		}
		if top == nil {
			return
		}
		if _, found := topology.Resolve(top, nil); found.Err() != nil {
			t.Fatalf("does not resolve: %v", found)
		}
	})
}
