package store

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func machine(name, id string) hosts.Host {
	return hosts.Host{Name: name, Machine: id, Address: netip.MustParseAddr("192.0.2.1"), Cores: 2}
}

func register(t *testing.T, s *Store, h hosts.Host) *Lease {
	t.Helper()
	l, err := s.Register(t.Context(), h, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(t.Context()) })
	return l
}

// visit registers a host that goes again.
func visit(t *testing.T, s *Store, h hosts.Host) {
	t.Helper()
	if err := register(t, s, h).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not %s within a minute", what)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestHostsComeAndGo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	changes, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutHost(ctx, machine("h1", "a")); !errors.Is(err, ErrNoHost) {
		t.Errorf("described before it registered: %v", err)
	}
	lease := register(t, s, machine("h1", "a"))
	if c := <-changes; c != (Change{What: HostsChanged}) {
		t.Errorf("saw %+v", c)
	}
	if isClosed(lease.Lost()) || !isClosed(lease.Renewed()) || time.Until(lease.Deadline()) > 10*time.Second {
		t.Errorf("a new lease ends in %v", time.Until(lease.Deadline()))
	}
	h := machine("h1", "a")
	h.Load = 1.5
	if err := s.PutHost(ctx, h); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.UpdatePolicy(ctx, "h1",
			func(p *hosts.Policy) error { p.Cordoned = !p.Cordoned; p.Draining = true; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.UpdatePolicy(ctx, "h2", func(*hosts.Policy) error { return nil }); !errors.Is(err, ErrNoHost) {
		t.Errorf("policy of no host: %v", err)
	}
	hosts, err := s.Hosts(ctx)
	if err != nil || len(hosts) != 1 || !hosts[0].Alive || hosts[0].Load != 1.5 || hosts[0].Policy.Cordoned ||
		!hosts[0].Policy.Draining {
		t.Fatalf("%+v, %v", hosts, err)
	}
	if err := s.DeleteHost(ctx, "h1"); !errors.Is(err, ErrHostAlive) {
		t.Errorf("deleted while alive: %v", err)
	}
	if err := lease.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if !isClosed(lease.Lost()) {
		t.Error("closed, and not lost")
	}
	gone, err := s.HostState(ctx, "h1")
	if err != nil || gone.Alive || time.Since(gone.Since) > time.Minute {
		t.Fatalf("%+v, %v", gone, err)
	}
	if again, err := s.HostState(ctx, "h1"); err != nil || again.Since != gone.Since {
		t.Errorf("it is lost since %v, then since %v", gone.Since, again.Since)
	}
	// It was here meanwhile, unseen: the absence is another one.
	visit(t, s, machine("h1", "a"))
	if again, err := s.HostState(ctx, "h1"); err != nil || !again.Since.After(gone.Since) {
		t.Errorf("it is lost since %v, then since %v", gone.Since, again.Since)
	}
	if err := s.DeleteHost(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HostState(ctx, "h1"); !errors.Is(err, ErrNoHost) {
		t.Errorf("after it was removed: %v", err)
	}
}

func TestTwoMachinesWithOneName(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	first := register(t, s, machine("h1", "a"))
	if _, err := s.Register(t.Context(), machine("h1", "b"), 10*time.Second); !errors.Is(err, ErrNameTaken) {
		t.Errorf("another machine: %v", err)
	} else {
		t.Log(err)
	}
	register(t, s, machine("h1", "a")) // its agent was started again
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h, err := s.HostState(t.Context(), "h1"); err != nil || !h.Alive {
		t.Errorf("the end of an older lease ended the newer one: %+v, %v", h, err)
	}
}

// placedOn makes a slice whose nodes are on hosts.
func placedOn(name string, hosts ...string) *slice.Slice {
	s := network(name, len(hosts))
	for i, host := range hosts {
		s.Nodes[i].Host = host
	}
	return s
}

func TestSliceStaysUntilItsLastHostReleasedIt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	for _, name := range []string{"h1", "h3"} {
		register(t, s, machine(name, name))
	}
	lost := register(t, s, machine("h2", "h2"))
	mustPut(t, s, placedOn("a", "h1", "h2"), 0)
	mustPut(t, s, placedOn("a", "h1", "h3"), 1)
	r, err := s.Record(ctx, "a")
	if err != nil || fmt.Sprint(r.Hosts) != "[h1 h2 h3]" {
		t.Fatalf("%v, %v", r.Hosts, err)
	}
	if err := s.Release(ctx, "h3", "a"); err == nil {
		t.Error("a host released what is wanted of it")
	}
	if err := s.DeleteSlice(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := lost.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	for _, host := range []string{"h1", "h3", "h4"} { // h4 never had any of it
		both.Go(func() {
			if err := s.Release(ctx, host, "a"); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if r, err := s.Record(ctx, "a"); err != nil || fmt.Sprint(r.Hosts) != "[h2]" {
		t.Fatalf("what a lost host may have was forgotten: %v, %v", r.Hosts, err)
	}
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Record(ctx, "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the last host that may have something was removed, and the slice is there: %v", err)
	}
}

func TestHostWithoutNodesReleasesAWantedSlice(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	for _, name := range []string{"h1", "h2"} {
		register(t, s, machine(name, name))
	}
	mustPut(t, s, placedOn("a", "h1", "h2"), 0)
	mustPut(t, s, placedOn("a", "h1"), 1)
	if err := s.PutStatus(ctx, "h1", slice.Status{Slice: "a", Generation: 2, Settled: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutStatus(ctx, "h2", slice.Status{Slice: "a", Generation: 1, Settled: true}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, "a"); err != nil || st.Generation != 1 {
		t.Errorf("while h2 has some: %+v, %v", st, err)
	}
	if err := s.Release(ctx, "h2", "a"); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, "a"); err != nil || st.Generation != 2 || !st.Settled {
		t.Errorf("when it has none: %+v, %v", st, err)
	}
	if r, err := s.Record(ctx, "a"); err != nil || fmt.Sprint(r.Hosts) != "[h1]" || r.Generation != 2 {
		t.Errorf("record %+v, %v", r, err)
	}
}

func TestNodesOfLostHostsAreLost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	leases := map[string]*Lease{}
	for _, name := range []string{"h1", "h2", "h3"} {
		leases[name] = register(t, s, machine(name, name))
	}
	spec := placedOn("a", "h1", "h2", "h3")
	spec.Nodes = append(spec.Nodes, slice.Node{Name: "sw", Kind: slice.Switch})
	mustPut(t, s, spec, 0)
	put := func(host string, generation int64, nodes ...string) {
		t.Helper()
		st := slice.Status{Slice: "a", Generation: generation, Settled: true,
			Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{"l00001": {Up: true}}}
		for _, n := range nodes {
			st.Nodes[n] = slice.NodeStatus{Phase: slice.Running, PID: 1}
		}
		if err := s.PutStatus(ctx, host, st); err != nil {
			t.Fatal(err)
		}
	}
	put("h1", 1, "r00000", "sw")
	put("h2", 1, "r00001", "sw")
	if st, err := s.Status(ctx, "a"); err != nil || st.Settled || st.Generation != 0 {
		t.Errorf("settled before h3 reported: %+v, %v", st, err)
	}
	for _, name := range []string{"h2", "h3"} { // h3 has not reported
		if err := leases[name].Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.Status(ctx, "a")
	if err != nil || st.Settled || st.Links["l00001"].Up {
		t.Fatalf("%+v, %v", st, err)
	}
	for node, want := range map[string]slice.Phase{"r00000": slice.Running, "sw": slice.Running,
		"r00001": slice.Lost, "r00002": slice.Lost} {
		if got := st.Nodes[node]; got.Phase != want ||
			want == slice.Lost && (got.PID != 0 || got.Message == "") {
			t.Errorf("%s is %+v, want %s", node, got, want)
		}
	}
	// They are made anew on a host that is alive: the report of the lost one counts no more.
	for i := range 3 {
		spec.Nodes[i].Host = "h1"
	}
	mustPut(t, s, spec, 1)
	put("h1", 2, "r00000", "r00001", "r00002", "sw")
	st, err = s.Status(ctx, "a")
	if err != nil || !st.Settled || st.Generation != 2 || st.Nodes["r00001"].Phase != slice.Running ||
		st.Nodes["r00001"].Host != "h1" || !st.Links["l00001"].Up {
		t.Errorf("%+v, %v", st, err)
	}
}

// A leader may act on an old snapshot: a write that moves nodes away from a host fails if the host is alive then.
func TestNodesAreMovedOnlyFromLostHosts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	spec := &slice.Slice{Name: "lab", Nodes: []slice.Node{{Name: "a", Host: "h1"}}}
	if err := s.PutSlice(ctx, spec, 0); err != nil {
		t.Fatal(err)
	}
	lease := register(t, s, machine("h1", "a"))
	moved := &slice.Slice{Name: "lab", Nodes: []slice.Node{{Name: "a", Host: "h2"}}}
	if err := s.PutSlice(ctx, moved, 1, s.WhileLost("h1")); !errors.Is(err, ErrConflict) {
		t.Errorf("moved away from a host that is alive: %v", err)
	}
	if now, _, err := s.Slice(ctx, "lab"); err != nil || now.Nodes[0].Host != "h1" {
		t.Errorf("the slice is %+v, %v", now, err)
	}
	if err := lease.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSlice(ctx, moved, 1, s.WhileLost("h1")); err != nil || moved.Generation != 2 {
		t.Errorf("moved away from a lost host: generation %d, %v", moved.Generation, err)
	}
}
