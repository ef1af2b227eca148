package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestPruneKeepsWhatStillFits(t *testing.T) {
	s := &slice.Slice{Nodes: []slice.Node{{Name: "h", Kind: slice.Host}, {Name: "s", Kind: slice.Switch},
		{Name: "off", Kind: slice.Switch}}}
	o := slice.Overrides{Power: map[string]slice.Power{"h": slice.PowerFrozen, "s": slice.PowerFrozen,
		"off": slice.PowerOff, "gone": slice.PowerOff}}
	if !prune(&o, s) {
		t.Error("nothing was pruned")
	}
	// s was paused, and became a switch
	want := map[string]slice.Power{"h": slice.PowerFrozen, "off": slice.PowerOff}
	if diff := cmp.Diff(want, o.Power); diff != "" {
		t.Error(diff)
	}
}
