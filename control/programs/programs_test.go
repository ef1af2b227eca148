package programs

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/model/slice"
)

// post is examples/programs/post.c, without the debug information that tests do not need:
//
//	pergola program build post.c -- -fdebug-compilation-dir=examples && llvm-strip -g post.o
//
//go:embed testdata/post.o
var post []byte

func TestCheckSaysWhatIsWrongAndWhere(t *testing.T) {
	elf := slice.ObjectName(post)
	s := &slice.Slice{Programs: map[string][]byte{
		elf: post, "text": []byte("text"), "other": {0x7f, 'E', 'L', 'F'},
	}}
	for name, p := range map[string]slice.PacketProgram{
		"good":       {Object: elf, Filters: []string{"area=1 -> send 1", "station=1/1 -> flood 1,2"}, Interfaces: []string{"a", "b"}},
		"field":      {Object: elf, Filters: []string{"any -> drop", "are=1 -> send 1"}, Interfaces: []string{"a"}},
		"interface":  {Object: elf, Filters: []string{"any -> send 2"}, Interfaces: []string{"a"}},
		"flood":      {Object: elf, Filters: []string{"any -> flood 1,3"}, Interfaces: []string{"a", "b"}},
		"text":       {Name: "dir/x.txt", Object: "text"},
		"also-text":  {Name: "dir/x.txt", Object: "text"},
		"half":       {Name: "y.o", Object: "other"},
		"not-there":  {Name: "z.o", Object: "none"},
		"no-verdict": {Object: elf, Filters: []string{"any"}},
	} {
		s.Nodes = append(s.Nodes, slice.Node{Name: name, Kind: slice.Program, Program: &p})
	}
	s.Nodes = append(s.Nodes, slice.Node{Name: "host", Kind: slice.Host})
	found := map[string]string{}
	for _, d := range Check(s) {
		if found[d.Path] != "" {
			t.Errorf("%s: %s, and %s", d.Path, found[d.Path], d)
		}
		found[d.Path] = d.Message
	}
	want := map[string]string{
		"nodes.field.filters":      `filter "are=1 -> send 1": the key has no field "are"; it has area`,
		"nodes.interface.filters":  `filter "any -> send 2": there is no interface 2: the node has 1`,
		"nodes.flood.filters":      `filter "any -> flood 1,3": there is no interface 3: the node has 2`,
		"nodes.half.program":       "y.o: is no object file",
		"nodes.not-there.program":  "z.o: is no object file",
		"nodes.no-verdict.filters": `filter "any": a filter is FIELD=VALUE... -> VERDICT; there is no ->`,
	}
	texts := 0
	for _, path := range []string{"nodes.text.program", "nodes.also-text.program"} { // said once of one object
		if strings.HasPrefix(found[path], "x.txt: is no object file") {
			texts++
			delete(found, path)
		}
	}
	if texts != 1 {
		t.Errorf("an object that two nodes have is refused %d times", texts)
	}
	for path, message := range want {
		if !strings.HasPrefix(found[path], message) {
			t.Errorf("%s: %q, want %q", path, found[path], message)
		}
		delete(found, path)
	}
	if len(found) > 0 {
		t.Errorf("more is wrong: %v", found)
	}
}

func TestProgramsDeclareNoMoreThanTheirNodesReserve(t *testing.T) {
	elf := slice.ObjectName(post)
	s := &slice.Slice{Programs: map[string][]byte{elf: post}, Nodes: []slice.Node{
		{
			Name:    "two",
			Program: &slice.PacketProgram{Object: elf, Filters: []string{"area=1 -> drop", "any -> drop"}},
			Reserve: slice.Reserve{Filters: 1},
		},
	}}
	found := Check(s)
	if len(found) != 1 || found[0].Path != "nodes.two.filters" ||
		found[0].Message != "there are 2 filters, and 1 are reserved" {
		t.Errorf("found %v", found)
	}
	o := &program.Object{Name: "x.o", Memory: program.Memory{Element: 6, Count: 1 << 18}}
	for reserved, want := range map[int64]string{
		0:       "x.o declares 2097152 bytes of memory, and the node may have 1048576",
		1 << 16: "x.o declares 2097152 bytes of memory, and the node may have 65536",
		2 << 20: "",
	} {
		got := ""
		if err := checkMemory(o, slice.Reserve{Memory: reserved}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("with %d reserved: %q", reserved, got)
		}
	}
}
