package store

import (
	"errors"
	"fmt"
	"strings"
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

	// What takes nothing more of hosts ends no admission.
	admitted = nothingPlaced()
	if err := s.UpdateOverrides(ctx, "a", func(o *slice.Overrides) (bool, error) {
		o.Power = map[string]slice.Power{"r00000": slice.PowerOff}
		return false, nil
	}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, network("a", 1), 1)
	if err := s.DeleteSlice(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("b", 2), 0, admitted); err != nil {
		t.Errorf("after a node was switched off, one removed, and the slice deleted: %v", err)
	}
	mustPut(t, s, network("c", 2), 0)
	admitted = nothingPlaced()
	if err := s.UpdateOverrides(ctx, "c", func(o *slice.Overrides) (bool, error) {
		o.Shapes = map[string]slice.Shape{"r00001:eth0": {Rate: 1e6, Queues: []slice.Queue{{Share: 1}}}}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("d", 2), 0, admitted); !errors.Is(err, ErrConflict) {
		t.Errorf("admitted before there were more queues: %v", err)
	}
}

func TestQueuesThatWereAdmittedBeforeSomethingWasPlacedAreAConflict(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	mustPut(t, s, network("a", 2), 0)
	for _, takes := range []bool{true, false} {
		err := s.UpdateOverrides(ctx, "a", func(*slice.Overrides) (bool, error) {
			admitted, err := s.NothingPlaced(ctx)
			if err != nil {
				return false, err
			}
			return takes, s.PutSlice(ctx, network(fmt.Sprint("b-", takes), 2), 0, admitted)
		})
		if errors.Is(err, ErrConflict) != takes || !takes && err != nil {
			t.Errorf("it takes more: %v: %v", takes, err)
		}
	}
}

func TestOverridesThatChangedMeanwhileAreAConflict(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir())
	mustPut(t, s, network("a", 2), 0)
	off := func(o *slice.Overrides) (bool, error) {
		o.Power = map[string]slice.Power{"r00000": slice.PowerOff}
		return false, nil
	}
	_, unchanged, err := s.OverridesUnchanged(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UpdateOverrides(ctx, "a", off); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, network("a", 3), 1, unchanged); !errors.Is(err, ErrConflict) ||
		!strings.Contains(err.Error(), "network a was changed by hand") {
		t.Errorf("a version: %v", err)
	}
	o, unchanged, err := s.OverridesUnchanged(ctx, "a")
	if err != nil || o.Power["r00000"] != slice.PowerOff {
		t.Errorf("%+v, %v", o, err)
	}
	if err := s.PutSlice(ctx, network("a", 3), 1, unchanged); err != nil {
		t.Errorf("after they were read again: %v", err)
	}
	for what, meanwhile := range map[string]func() error{
		"was changed by hand": func() error { return s.UpdateOverrides(ctx, "a", off) },
		"has a newer version": func() error { return s.PutSlice(ctx, network("a", 2), 2) },
	} {
		err := s.UpdateOverrides(ctx, "a", func(o *slice.Overrides) (bool, error) {
			if err := meanwhile(); err != nil {
				t.Fatal(err)
			}
			return off(o)
		})
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "network a "+what) {
			t.Errorf("overrides: %v, want %s", err, what)
		}
	}
}
