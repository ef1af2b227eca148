package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

const withPrograms = `name: lab
groups:
  offices: {program: post.o, filters: all.txt}
nodes:
  h:
  west: {group: offices}
  east: {group: offices, filters: [any -> drop, more.txt]}
links:
  - ["west:down", east]
  - [h, west]
  - [east, "west:back"]
`

func TestProgramsHaveObjectsFiltersAndNumberedInterfaces(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(withPrograms))
	for _, s := range top.Sources() {
		switch s.Path {
		case "post.o":
			s.Data = []byte("an object")
			if !s.IsProgram {
				t.Error("a program is no program")
			}
		case "all.txt":
			s.Data = []byte("# nothing\n\n area=1 -> send 1 # west\nany -> punt")
		case "more.txt":
			s.Data = []byte("area=2 -> send 2\n")
		}
	}
	s := mustResolve(t, throughJSON(t, top), nil)
	object := slice.ObjectName([]byte("an object"))
	want := map[string]*slice.PacketProgram{
		"west": {Name: "post.o", Object: object, Filters: []string{"area=1 -> send 1", "any -> punt"},
			Interfaces: []string{"down", "eth1", "back"}},
		"east": {Name: "post.o", Object: object, Filters: []string{"any -> drop", "area=2 -> send 2"},
			Interfaces: []string{"eth1", "eth2"}},
	}
	for name, p := range want {
		n := s.Node(name)
		if diff := cmp.Diff(p, n.Program); diff != "" || n.Kind != slice.Program || !n.HasSliver() {
			t.Errorf("%s is %s: %s", name, n.Kind, diff)
		}
		for _, i := range n.Interfaces {
			if len(i.Addresses) > 0 {
				t.Errorf("%s:%s has addresses %v, and none are written", name, i.Name, i.Addresses)
			}
		}
	}
	if len(s.Programs) != 1 || string(s.Programs[object]) != "an object" {
		t.Errorf("programs %v", s.Programs)
	}
	if h := s.Node("h"); len(h.Routes) > 0 || len(h.Interfaces[0].Addresses) != 2 {
		t.Errorf("the host has routes %v, addresses %v", h.Routes, h.Interfaces[0].Addresses)
	}
}

func TestProgramsAreBounded(t *testing.T) {
	top := &Topology{Name: "lab", Nodes: map[string]Node{"p": {}, "q": {}}}
	p := top.Nodes["p"]
	p.Program = &Source{Path: "x.o", Data: make([]byte, slice.MaxObject+1)}
	top.Nodes["p"] = p
	for range slice.MaxProgramInterfaces + 1 {
		top.Links = append(top.Links, Link{Ends: []End{"p", "q"}})
	}
	_, found := Resolve(top, nil)
	text := found.Error()
	for _, want := range []string{
		"nodes.p.program: the object has 262145 bytes, and may have 262144",
		`links[63].ends[0]: "p" has 64 interfaces, and a packet program knows 63`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
}
