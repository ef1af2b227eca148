package store

import (
	"errors"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestWhatIsPlacedEndsOtherAdmissions(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	nothingPlaced := func() Condition {
		t.Helper()
		c, err := s.NothingPlaced(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	admitted := nothingPlaced()
	if err := s.PutSlice(ctx, network("a", 2), 0, admitted); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("b", 2), 0, admitted); !errors.Is(err, ErrConflict) {
		t.Errorf("admitted before a was placed: %v", err)
	}
	if _, err := s.Record(ctx, "b"); !errors.Is(err, ErrNotFound) || partCount(t, s) != 1 {
		t.Errorf("a part of what was refused is stored: %v", err)
	}

	// What takes nothing of a host ends no admission; queues do.
	admitted = nothingPlaced()
	if err := s.UpdateOverrides(ctx, "a", func(o *slice.Overrides) error {
		o.Power = map[string]slice.Power{"r00000": slice.PowerOff}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSlice(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("b", 2), 0, admitted); err != nil {
		t.Errorf("after a node was switched off, and a slice deleted: %v", err)
	}
	mustPut(t, s, network("c", 2), 0)
	admitted = nothingPlaced()
	if err := s.UpdateOverrides(ctx, "c", func(o *slice.Overrides) error {
		o.Shapes = map[string]slice.Shape{"r00001:eth0": {Rate: 1e6, Queues: []slice.Queue{{Share: 1}}}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("d", 2), 0, admitted); !errors.Is(err, ErrConflict) {
		t.Errorf("admitted before there were more queues: %v", err)
	}
}

func TestQueuesAreAdmittedAgainAfterSomethingWasPlaced(t *testing.T) {
	s := open(t, t.TempDir())
	mustPut(t, s, network("a", 2), 0)
	called := 0
	if err := s.UpdateOverrides(t.Context(), "a", func(o *slice.Overrides) error {
		if called++; called == 1 {
			mustPut(t, s, network("b", 2), 0)
		}
		o.Shapes = map[string]slice.Shape{"r00001:eth0": {Rate: 1e6, Queues: []slice.Queue{{Share: 1}}}}
		return nil
	}); err != nil || called != 2 {
		t.Errorf("asked %d times: %v", called, err)
	}
}
