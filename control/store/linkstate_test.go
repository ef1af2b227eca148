package store

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestLinkStateIsThatOfEachHostUntilItLetsGo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	is := slice.LinkState{"r1": {"eth1": {1, 2, 3, 4, 5, 6, 7, 8}}}
	if err := s.PutLinkState(ctx, "h1", "a", is); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no network: %v", err)
	}
	spec := network("a", 2)
	spec.Nodes[0].Host, spec.Nodes[1].Host = "h1", "h1"
	mustPut(t, s, spec, 0)
	for _, host := range []string{"h1", "h2"} {
		if err := s.PutLinkState(ctx, host, "a", is); err != nil {
			t.Fatal(err)
		}
		if err := s.PutStatus(ctx, host, slice.Status{Slice: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Release(ctx, "h2", "a"); err != nil {
		t.Fatal(err)
	}
	got, err := s.LinkStates(ctx, "a")
	if diff := cmp.Diff(map[string]slice.LinkState{"h1": is}, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}
