package slice

import (
	"fmt"
	"reflect"
	"testing"
)

// network has nodes, and links between the nodes that are named together.
func network(nodes []string, links ...[]string) *Slice {
	s := &Slice{}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, Node{Name: n})
	}
	for _, names := range links {
		var l Link
		for _, n := range names {
			l.Ends = append(l.Ends, End{Node: n})
		}
		s.Links = append(s.Links, l)
	}
	return s
}

func TestParts(t *testing.T) {
	s := network([]string{"a", "b", "c", "d", "e", "f", "g"}, []string{"b", "d"}, []string{"c", "e", "f"},
		[]string{"f", "c"})
	want := [][]string{{"c", "e", "f"}, {"b", "d"}, {"a"}, {"g"}}
	if got := s.Parts(); !reflect.DeepEqual(got, want) {
		t.Errorf("the parts are %v, want %v", got, want)
	}
	const text = "no links join the network's 4 parts: 3 nodes with c, 2 nodes with b; 2 without a link: a, g"
	if got := s.Disconnected(); got != text {
		t.Errorf("it says %q, want %q", got, text)
	}
}

func TestDisconnectedNamesAFew(t *testing.T) {
	var nodes []string
	for i := range 20 {
		nodes = append(nodes, fmt.Sprintf("n%02d", i))
	}
	const text = "no links join the network's 20 parts: 20 without a link: n00, n01, n02, n03, n04 and 15 more"
	if got := network(nodes).Disconnected(); got != text {
		t.Errorf("it says %q, want %q", got, text)
	}
}

func TestNetworkOfOnePieceIsNotDisconnected(t *testing.T) {
	for _, s := range []*Slice{
		network(nil), network([]string{"a"}),
		network([]string{"a", "b", "c"}, []string{"a", "b"}, []string{"c", "b"}),
	} {
		if got := s.Disconnected(); got != "" {
			t.Errorf("a network of %d nodes that is of one piece says %q", len(s.Nodes), got)
		}
	}
}

func TestManagementJoinsNoParts(t *testing.T) {
	s := network([]string{"a", "b", "mgmt"}, []string{"a", "mgmt"}, []string{"b", "mgmt"})
	s.Nodes[2].Kind = Switch
	for i := range 2 {
		s.Links[i].Name = s.Nodes[i].Name
		s.Nodes[i].Interfaces = []Interface{{Name: "eth0", Link: s.Links[i].Name, Management: true}}
	}
	if got, want := s.Parts(), [][]string{{"a"}, {"b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the parts are %v, want %v", got, want)
	}
	s.Links[1].Name, s.Nodes[1].Interfaces = "other", nil // a plain link to the same switch
	if got, want := s.Parts(), [][]string{{"b", "mgmt"}, {"a"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the parts are %v, want %v", got, want)
	}
}
