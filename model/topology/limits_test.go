package topology

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

// allocated is how many bytes do takes from the heap: a measure of its work that does not depend on the machine's load.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// ring writes a file of many routers.
func ring(nodes int) []byte {
	var b strings.Builder
	b.WriteString("name: ring\ndefaults: {node: {kind: router}}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  n%d:\n", i)
	}
	b.WriteString("links:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  - [n%d, n%d]\n", i, (i+1)%nodes)
	}
	return []byte(b.String())
}

// BenchmarkParse reads rings of routers.
func BenchmarkParse(b *testing.B) {
	for _, nodes := range []int{1000, slice.MaxNodes} {
		file := ring(nodes)
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustParse(b, "ring.yaml", file)
			}
		})
	}
}

func TestTooManyNodesIsOneErrorAtOnce(t *testing.T) {
	file := ring(100_000)
	var found Diagnostics
	used := allocated(func() { _, found = Parse("ring.yaml", file) })
	if len(found) != 1 || !strings.HasPrefix(found[0].String(), "ring.yaml:10004:3: more than 10000 nodes") {
		t.Errorf("got %v", found)
	}
	t.Logf("allocated %d MiB", used>>20)
	if used > 600<<20 {
		t.Errorf("allocated %d MiB", used>>20)
	}

	var inJSON = Topology{Name: "ring", Nodes: map[string]Node{}}
	for i := range 100_000 {
		inJSON.Nodes[fmt.Sprint("n", i)] = Node{}
	}
	if _, found := Resolve(&inJSON, nil); len(found) != 1 || !strings.Contains(found.Error(), "100000 nodes") {
		t.Errorf("got %v", found)
	}
}

func TestLargestNetworkResolves(t *testing.T) {
	resolve := func(nodes int) func() {
		top := mustParse(t, "ring.yaml", ring(nodes))
		return func() {
			mustResolve(t, top, mustResolve(t, top, nil))
			star := &Topology{Name: "star",
				Nodes: map[string]Node{"s": {Attributes: Attributes{Kind: slice.Switch}}}}
			for i := range nodes - 1 {
				host := fmt.Sprint("h", i)
				star.Nodes[host] = Node{}
				star.Links = append(star.Links, Link{Ends: []End{"s", End(host)}})
			}
			mustResolve(t, star, mustResolve(t, star, nil))
		}
	}
	const part = 8
	small, large := allocated(resolve(slice.MaxNodes/part)), allocated(resolve(slice.MaxNodes))
	t.Logf("allocated %d and %d MiB", small>>20, large>>20)
	if large > part*small*3/2 {
		t.Errorf("%d times the nodes take %d times the memory", part, large/small)
	}
}

// TestHostileFilesCostLittle has files that were made to exhaust whoever reads them.
func TestHostileFilesCostLittle(t *testing.T) {
	bomb := "x-0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("x-%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	mergeBomb := "x-0: &a0 {k: v}\n"
	for i := 1; i < 30; i++ {
		mergeBomb += fmt.Sprintf("x-%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i-1, i-1)
	}
	// What a file costs is bounded by the limit that it exceeds. The costliest is that of values, which aliases
	// multiply.
	most := map[string]uint64{"big nodes": 1200 << 20, "big merge": 200 << 20, "wide map": 200 << 20}
	for name, c := range map[string]struct{ file, want string }{
		"brackets":   {"nodes: " + strings.Repeat("[", 1_000_000), "nested deeper than 100 levels"},
		"braces":     {"nodes: " + strings.Repeat("{a: ", 1_000_000), "nested deeper than 100 levels"},
		"dashes":     {strings.Repeat("- ", 100_000), "nested deeper than 100 levels"},
		"indented":   {staircase(5_000), "nested deeper than 100 levels"},
		"tags":       {"nodes: " + strings.Repeat("!a ", 100_000) + "x", "not YAML"},
		"aliases":    {bomb + "nodes: {a: {exec: *a11}}\n", "an element of exec is a text, not a list"},
		"nodes bomb": {bomb + "nodes: *a11\n", "a list of nodes holds names alone"},
		"links bomb": {bomb + "nodes: [x]\nlinks: *a11\n", "an element of ends is a text, not a list"},
		"big nodes":  {multiplied(), "aliases nest too deep or expand to too much"},
		"merge bomb": {mergeBomb + "nodes: {a: *a29}\n", `unknown key "k"`},
		"big merge":  {mergedMaps(), "aliases nest too deep or expand to too much"},
		"own alias":  {"nodes: &n {a: *n}\n", `unknown key "a"`},
		"own merge":  {"nodes: {a: &n {<<: *n}}\n", "aliases nest too deep or expand to too much"},
		"wide map":   {"nodes: {a: {env: {" + strings.Repeat("k: v,\n", 50_000) + "}}}", `key "k" is written twice`},
		"marks":      {"nodes: [" + strings.Repeat("a,", 3_000_000) + "]", "at most 2500000 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			var found Diagnostics
			used := allocated(func() { _, found = Parse("t.yaml", []byte(c.file)) })
			if len(found) == 0 || !strings.Contains(found.Error(), c.want) {
				text := found.Error()
				t.Errorf("want %q, got %.500s", c.want, text)
			}
			t.Logf("%d KiB allocated %d MiB", len(c.file)>>10, used>>20)
			if used > cmp.Or(most[name], 64<<20) {
				t.Errorf("allocated %d MiB", used>>20)
			}
		})
	}
}

// multiplied has 8,000 nodes with the same 1,000 variables.
func multiplied() string {
	var b strings.Builder
	b.WriteString("x-n: &n\n  env:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "    k%d: v\n", i)
	}
	b.WriteString("nodes:\n")
	for i := range 8000 {
		fmt.Fprintf(&b, "  n%d: *n\n", i)
	}
	return b.String()
}

// mergedMaps has 8,000 maps that each merge the same 1,000 entries.
func mergedMaps() string {
	var b strings.Builder
	b.WriteString("x-e: &e\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "  k%d: v\n", i)
	}
	b.WriteString("x-m:\n")
	for range 8000 {
		b.WriteString("  - {<<: *e}\n")
	}
	return b.String() + "nodes: [a]\n"
}

func staircase(steps int) string {
	var b strings.Builder
	b.WriteString("nodes:\n")
	for i := range steps {
		b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return b.String()
}
