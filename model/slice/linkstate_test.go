package slice

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAHostIsHeardOnLinksOfItsOwnRouters(t *testing.T) {
	s := &Slice{Nodes: []Node{{Name: "a", Host: "h1"}, {Name: "b", Host: "h2"}, {Name: "c", Host: "h3"}}}
	of := func(b uint64) map[string][8]uint64 { return map[string][8]uint64{"eth1": {b}} }
	got := s.LinkStateBeside("h1", map[string]LinkState{
		"h1": {"a": of(1)}, "h2": {"a": of(2), "b": of(3), "c": of(4)}, "h4": {"b": of(5)},
	})
	if want := (LinkState{"b": of(3)}); !cmp.Equal(got, want) {
		t.Errorf("it is %v, want %v", got, want)
	}
}
