package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/model/slice"
)

// far is an agent's store behind a wire that can be cut.
type far struct {
	*testing.T
	wire   *proxy
	server *server
	config Config
}

func newFar(t *testing.T) *far {
	t.Helper()
	c := newCluster(t)
	server := c.start("h1", c.config("h1"))
	wire := newProxy(t, server.config.Cluster.ListenClient)
	return &far{t, wire, server, Config{
		Endpoints: []string{"https://" + wire.Addr().String()}, TLS: pki.ClientConfig(c.identity("h2", pki.Agent)),
		Patient: true, Memory: filepath.Join(t.TempDir(), "memory"),
	}}
}

// open starts the agent's process.
func (f *far) open() *Store {
	f.Helper()
	s, err := Open(f.Context(), f.config)
	if err != nil {
		f.Fatal(err)
	}
	s.peers = f.config.TLS // it follows servers, but for learning that there is a way round the wire
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

func TestAgentRemembersWhatItWasTold(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	recalling := Recalling(t.Context())
	register(t, f.server.Store, machine("h1", "a"))
	register(t, f.server.Store, machine("h2", "b"))
	for _, name := range []string{"kept", "gone"} {
		mustPut(t, f.server.Store, placedOn(name, "h1", "h2"), 0)
	}
	off := func(o *slice.Overrides) error { o.Power = map[string]slice.Power{"r00001": slice.PowerOff}; return nil }
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
	f.wire.set(true)
	if _, err := read(t.Context(), first); !errors.Is(err, ErrSilent) {
		t.Errorf("who did not ask for what is remembered: %v", err)
	}
	own := slice.Status{Slice: "kept", Generation: 1, Settled: true, Nodes: map[string]slice.NodeStatus{"r00001": {Phase: slice.Running, PID: 7}}}
	if err := first.PutStatus(t.Context(), "h2", own); !errors.Is(err, ErrSilent) {
		t.Errorf("report without servers: %v", err)
	}
	st, err := first.Status(recalling, "kept")
	if err != nil || st.Settled || st.Generation != 1 || st.Nodes["r00001"].PID != 7 || st.Nodes["r00000"].Phase != slice.Lost {
		t.Errorf("status: %+v, %v", st, err)
	}
	first.Close()

	next := f.open() // the next process
	if names, err := read(recalling, next); err != nil || len(names) != 2 {
		t.Errorf("the next process recalls %v, %v", names, err)
	}
	spec, r, err := next.Slice(recalling, "kept")
	if err != nil || spec.ID != r.ID || r.ID == 0 || spec.Generation != 1 || len(spec.Nodes) != 2 {
		t.Errorf("slice: %+v of %+v, %v", spec, r, err)
	}
	o, err := next.Overrides(recalling, "kept")
	g, gerr := next.Generations(recalling, "kept")
	h, herr := next.HostState(recalling, "h1")
	if o.Power["r00001"] != slice.PowerOff || g["h1"] != 1 || !h.Address.IsValid() || errors.Join(err, gerr, herr) != nil {
		t.Errorf("overrides %v, generations %v, host %v; %v, %v, %v", o, g, h, err, gerr, herr)
	}
	if _, _, err := next.Slice(recalling, "never"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a slice that never was: %v", err)
	}

	// What was deleted meanwhile is forgotten with the first answer.
	if err := f.server.DeleteSlice(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h1", "h2"} {
		if err := f.server.Release(t.Context(), host, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	f.wire.set(false)
	eventually(t, "an answer", func() error { _, err := read(t.Context(), next); return err })
	f.wire.set(true)
	eventually(t, "silence", func() error {
		if _, err := next.Slices(t.Context()); !errors.Is(err, ErrSilent) {
			return errors.New("it answers")
		}
		return nil
	})
	if names, err := read(recalling, next); err != nil || len(names) != 1 || names[0] != "kept" {
		t.Errorf("after the answer: %v, %v", names, err)
	}
}

// Who takes for unwanted what is not listed must get no list rather than half of one.
func TestHalfAMemoryIsNone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "memory")
	spec := func(name string, id uint16) (Record, *slice.Slice) {
		return Record{Name: name, ID: id, revision: int64(id)}, &slice.Slice{Name: name, ID: id}
	}
	records := func(m *memory) int {
		all, err := m.recordsLocked()
		if err != nil && !errors.Is(err, ErrSilent) {
			t.Error(err)
		}
		return len(all)
	}
	m := openMemory(dir, zap.NewNop())
	a, aSpec := spec("a", 1)
	b, bSpec := spec("b", 2)
	m.heardNames([]Record{a, b}, 2)
	m.heardSlice(a, aSpec, 2)
	if n := records(openMemory(dir, zap.NewNop())); n != 0 {
		t.Errorf("%d slices, before all were told", n)
	}
	m.heardSlice(b, bSpec, 2)
	c, cSpec := spec("c", 3)
	m.heardSlice(c, cSpec, 3)
	m.heardNames([]Record{a, b}, 2) // an answer from before c, which comes late
	m.heardSlice(Record{Name: "c", ID: 3, Going: true, revision: 1}, cSpec, 1)
	if n := records(openMemory(dir, zap.NewNop())); n != 3 || m.slices["c"].Record.Going {
		t.Errorf("%d slices, when all were told", n)
	}
	m.heardGone("a", 4)
	if n := records(openMemory(dir, zap.NewNop())); n != 2 {
		t.Errorf("%d slices, when one has gone", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "slices", "b"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := records(openMemory(dir, zap.NewNop())); n != 0 {
		t.Errorf("%d slices, when a file is damaged", n)
	}
	if n := records(openMemory(dir, zap.NewNop())); n != 0 {
		t.Errorf("%d slices, after a damaged memory was forgotten", n)
	}
	// A directory that cannot be written to leaves nothing half.
	m = openMemory(filepath.Join(dir, "slices"), zap.NewNop())
	m.heardNames([]Record{a}, 1)
	if err := os.RemoveAll(filepath.Join(m.dir, "slices")); err != nil {
		t.Fatal(err)
	}
	m.heardSlice(a, aSpec, 1)
	if _, err := os.Stat(filepath.Join(dir, "slices")); !errors.Is(err, os.ErrNotExist) || m.dir != "" {
		t.Errorf("a memory that cannot be kept is still there: %v", err)
	}
}

// What every member can write names no file but the memory's own.
func TestNamesLeadToNoOtherFile(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	m := openMemory(filepath.Join(top, "memory"), zap.NewNop())
	other := filepath.Join(top, "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"../../other", other, "..", ".", "", "../names", strings.Repeat("a", 300)} {
		at := int64(i + 1)
		r := Record{Name: name, ID: 1, revision: at}
		m.heardSlice(r, &slice.Slice{Name: name, ID: 1}, at)
		m.heardNames([]Record{r}, at)
		if all, err := m.recordsLocked(); !errors.Is(err, ErrSilent) {
			t.Errorf("%q: %v, %v", name, all, err)
		}
		m.heardGone(name, at)
		m.heardNames(nil, at)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
		t.Errorf("%q, %v", text, err)
	}
	if m.dir == "" {
		t.Error("the memory was given up")
	}
}
