package store

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/storetest"
	"github.com/pergola-net/pergola/model/slice"
)

// far is an agent's store behind a wire that can be cut.
type far struct {
	*testing.T
	wire   *storetest.Wire
	server *server
	config Config
	cache  string
}

func newFar(t *testing.T) *far {
	t.Helper()
	c := newCluster(t)
	config := c.config("h1")
	wire := storetest.NewWire(t, config.Cluster.ListenClient)
	config.Cluster.AdvertiseClient = wire.URL() // so agents learn of no other address
	return &far{t, wire, c.start("h1", config), Config{
		Endpoints: []string{wire.URL()}, TLS: pki.ClientConfig(c.identity("h2", pki.Agent)), Follow: true,
		NoWait: true,
	}, filepath.Join(t.TempDir(), "cache")}
}

// open starts the agent's process.
func (f *far) open() *Store {
	f.Helper()
	s, err := Open(f.Context(), f.config, WithOfflineCache(f.cache, slog.New(slog.DiscardHandler)))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	return s
}

// read is what an agent reads when it starts.
func read(ctx context.Context, s *Store) (names []string, err error) {
	if _, err := s.Hosts(ctx); err != nil {
		return nil, err
	}
	records, err := s.Slices(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if _, _, err := s.Slice(ctx, r.Name); err != nil {
			return nil, err
		}
		if _, err := s.Overrides(ctx, r.Name); err != nil {
			return nil, err
		}
		if _, err := s.Generations(ctx, r.Name); err != nil {
			return nil, err
		}
		names = append(names, r.Name)
	}
	return names, nil
}

func TestAgentReadsFromItsOfflineCache(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	stale := AllowStale(t.Context())
	register(t, f.server.Store, machine("h1", "a"))
	register(t, f.server.Store, machine("h2", "b"))
	for _, name := range []string{"kept", "gone"} {
		mustPut(t, f.server.Store, placedOn(name, "h1", "h2"), 0)
	}
	off := func(o *slice.Overrides) (bool, error) {
		o.Power = map[string]slice.Power{"r00001": slice.PowerOff}
		return false, nil
	}
	if err := f.server.UpdateOverrides(t.Context(), "kept", off); err != nil {
		t.Fatal(err)
	}
	if err := f.server.PutStatus(t.Context(), "h1", slice.Status{Slice: "kept", Generation: 1}); err != nil {
		t.Fatal(err)
	}

	first := f.open()
	if _, err := read(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	f.wire.Cut(true)
	if _, err := read(t.Context(), first); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a read that does not allow stale answers: %v", err)
	}
	own := slice.Status{Slice: "kept", Generation: 1, Settled: true,
		Nodes: map[string]slice.NodeStatus{"r00001": {Phase: slice.Running, PID: 7}}}
	if err := first.PutStatus(t.Context(), "h2", own); !errors.Is(err, ErrUnreachable) {
		t.Errorf("report without servers: %v", err)
	}
	st, err := first.Status(stale, "kept")
	if err != nil || st.Settled || st.Generation != 1 || st.Nodes["r00001"].PID != 7 ||
		st.Nodes["r00000"].Phase != slice.Lost {
		t.Errorf("status: %+v, %v", st, err)
	}
	first.Close()

	next := f.open() // the next process
	if names, err := read(stale, next); err != nil || len(names) != 2 {
		t.Errorf("the next process reads %v, %v", names, err)
	}
	spec, r, err := next.Slice(stale, "kept")
	if err != nil || spec.ID != r.ID || r.ID == 0 || spec.Generation != 1 || len(spec.Nodes) != 2 {
		t.Errorf("slice: %+v of %+v, %v", spec, r, err)
	}
	o, err := next.Overrides(stale, "kept")
	g, gerr := next.Generations(stale, "kept")
	h, herr := next.HostState(stale, "h1")
	if o.Power["r00001"] != slice.PowerOff || g["h1"] != 1 || !h.Address.IsValid() ||
		errors.Join(err, gerr, herr) != nil {
		t.Errorf("overrides %v, generations %v, host %v; %v, %v, %v", o, g, h, err, gerr, herr)
	}
	if _, _, err := next.Slice(stale, "never"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a slice that never was: %v", err)
	}

	// What was deleted meanwhile is dropped from the cache with the first answer.
	if err := f.server.DeleteSlice(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h1", "h2"} {
		if err := f.server.Release(t.Context(), host, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	f.wire.Cut(false)
	eventually(t, "an answer", func() error { _, err := read(t.Context(), next); return err })
	f.wire.Cut(true)
	eventually(t, "silence", func() error {
		if _, err := next.Slices(t.Context()); !errors.Is(err, ErrUnreachable) {
			return errors.New("it answers")
		}
		return nil
	})
	if names, err := read(stale, next); err != nil || len(names) != 1 || names[0] != "kept" {
		t.Errorf("after the answer: %v, %v", names, err)
	}
}
