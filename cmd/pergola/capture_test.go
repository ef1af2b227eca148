package main

import (
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestCapturesOfPacketProgramsNameTheOtherEnd(t *testing.T) {
	end := func(node, iface string) slice.End { return slice.End{Node: node, Interface: iface} }
	s := &slice.Slice{
		Nodes: []slice.Node{{Name: "a", Kind: slice.Host}, {Name: "w", Kind: slice.Program},
			{Name: "v", Kind: slice.Program}},
		Links: []slice.Link{
			{Name: "a--w", Ends: []slice.End{end("a", "eth1"), end("w", "eth1")}},
			{Name: "w--v", Ends: []slice.End{end("w", "eth2"), end("v", "eth1")}},
		},
	}
	for iface, want := range map[string]string{
		"eth1": "`pergola capture a:eth1` shows", "eth2": "but what it punts does",
	} {
		if have := passedBy(s, end("w", iface)); !strings.Contains(have, want) {
			t.Errorf("%s: %s", iface, have)
		}
	}
}
