package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

func TestTheLeaderReportsEachChangeOnce(t *testing.T) {
	w := hostMonitor{grace: 15 * time.Second}
	start := time.Now()
	look := func(after time.Duration, hosts []store.HostState) ([]string, snapshot) {
		var reported []string
		seen := w.observe(hosts, start.Add(after))
		for _, e := range seen.events {
			reported = append(reported, e.Message)
		}
		return reported, seen
	}
	if reported, seen := look(0, machines(2)); reported != nil || seen.lost != nil || !seen.paths {
		t.Errorf("at first: %v, %+v", reported, seen)
	}
	gone := machines(3, lose("h2"), func(h []store.HostState) { h[1].Since = start.Add(time.Second) })
	want := []string{"host h2 is lost: its nodes that may be rescheduled start elsewhere in 14s",
		"host h3 joined the cluster"}
	reported, seen := look(2*time.Second, gone)
	if diff := cmp.Diff(want, reported); diff != "" || seen.lost != nil || seen.next != 14*time.Second ||
		!seen.paths {
		t.Errorf("%+v %s", seen, diff)
	}
	if reported, seen = look(16*time.Second, gone); reported != nil || !cmp.Equal(seen.lost, []string{"h2"}) ||
		seen.next != 30*time.Second || seen.paths {
		t.Errorf("after the grace: %v, %+v", reported, seen)
	}
	if reported, _ = look(17*time.Second, machines(3)); !cmp.Equal(reported, []string{"host h2 is back"}) {
		t.Errorf("back: %v", reported)
	}
	if reported, _ = look(18*time.Second, without(machines(3), "h2")); !cmp.Equal(reported,
		[]string{"host h2 was removed from the cluster"}) {
		t.Errorf("removed: %v", reported)
	}
	if _, seen = look(19*time.Second, machines(3,
		func(h []store.HostState) { h[0].Underlays[0].MTU = 1400 })); !seen.paths {
		t.Error("a smaller MTU is not reported")
	}
	narrow := machines(3, func(h []store.HostState) {
		h[0].Underlays[0].MTU, h[0].Paths = 1400,
			map[string]int{"h2": 1300}
	})
	if _, seen = look(20*time.Second, narrow); !seen.paths {
		t.Error("a path that carries less is not reported")
	}
}

// fake is a cluster whose hosts tests change, and this machine.
type fake struct {
	mu    sync.Mutex
	hosts []store.HostState // guarded by mu
}

func (f *fake) Hosts(context.Context) ([]store.HostState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]store.HostState(nil), f.hosts...), nil
}

func (f *fake) set(hosts []store.HostState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts = hosts
}

func (*fake) Supports(context.Context, *slice.Slice) ([]string, error) { return nil, nil }
func (*fake) Capacity() (float64, uint64)                              { return 2, 8 << 30 }
func (*fake) HaveRoom(context.Context, *hosts.Host, *slice.Slice, map[string]slice.Shape) error {
	return nil
}
func (*fake) Has(string) bool { return true }

// member makes a controller over a store of its own.
func member(t *testing.T, f *fake, options ...Option) (*Controller, *store.Store, *events.Bus) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(dir, "store"),
		LogFile: filepath.Join(dir, "etcd.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	bus := events.NewBus(64)
	return New(s, f, f, bus, options...), s, bus
}

func mustApply(t *testing.T, c *Controller, file string) (api.Plan, *slice.Slice) {
	t.Helper()
	plan, s, err := c.Apply(t.Context(), Caller{Root: true}, parsed(t, file), false)
	if err != nil {
		t.Fatal(err)
	}
	return plan, s
}

// parsed reads a topology file, whose packet programs are all the same one.
func parsed(t *testing.T, file string) *topology.Topology {
	t.Helper()
	top, found := topology.Parse("lab.yaml", []byte(file))
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	for _, n := range top.Nodes {
		if n.Program == nil {
			continue
		}
		var err error
		if n.Program.Data, err = os.ReadFile("../programs/testdata/post.o"); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

const spreadChain = `
name: lab
defaults: {node: {routing: ospf, reschedule: always}}
nodes: [a, b, c, d]
links: [[a, b], [b, c], [c, d]]
`

// The whole way: apply, lose a host, and see the leader move what was on it, once.
func TestTheLeaderMovesNodesOfALostHost(t *testing.T) {
	f := &fake{hosts: machines(3)}
	c, s, bus := member(t, f, InCluster(f, "h1"))
	c.grace = 10 * time.Millisecond
	plan, spec := mustApply(t, c, spreadChain)
	for _, change := range plan.Nodes {
		if change.Host == "" || change.Host != spec.Node(change.Name).Host {
			t.Errorf("plan %+v, placed on %q", change, spec.Node(change.Name).Host)
		}
	}
	if again, _ := mustApply(t, c, spreadChain); !again.Empty() {
		t.Errorf("applied twice: %+v", again)
	}
	lost := spec.Node("a").Host
	if err := s.PutStatus(t.Context(), lost, slice.Status{Slice: "lab", Generation: spec.Generation}); err != nil {
		t.Fatal(err)
	}
	f.set(machines(3, lose(lost), func(h []store.HostState) {
		for i := range h {
			h[i].Since = time.Now().Add(-time.Second)
		}
	}))
	ctx, stop := context.WithCancel(t.Context())
	led := make(chan error, 1)
	go func() { led <- c.Lead(ctx) }()
	wait(t, bus, "moved from host "+lost)
	now, _, err := s.Slice(t.Context(), "lab")
	if err != nil || now.Generation != spec.Generation+1 {
		t.Fatalf("generation %d after %d, %v", now.Generation, spec.Generation, err)
	}
	for _, n := range now.Nodes {
		if n.Host == lost || spec.Node(n.Name).Host != lost && n.Host != spec.Node(n.Name).Host {
			t.Errorf("%s was on %s, is on %s", n.Name, spec.Node(n.Name).Host, n.Host)
		}
	}
	stop()
	if err := <-led; !errors.Is(err, context.Canceled) {
		t.Errorf("the leader ended with %v", err)
	}
}

// wait waits for an event.
func wait(t *testing.T, bus *events.Bus, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for last := uint64(0); ; {
		es, err := bus.Next(ctx, last)
		if err != nil {
			t.Fatalf("no event %q: %v; events %v", message, err, bus.Recent(0))
		}
		for _, e := range es {
			if last = e.Seq; strings.Contains(e.Message, message) {
				return
			}
		}
	}
}

// Until then, a host that was drained and taken away would keep the slice from being deleted.
func TestHostsThatReleasedNodesAreDroppedFromLeft(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, s, _ := member(t, f, InCluster(f, "h1"))
	_, spec := mustApply(t, c, "name: lab\nnodes: [a]\n")
	from := spec.Node("a").Host
	f.set(machines(2, func(h []store.HostState) {
		for i := range h {
			h[i].Policy.Draining = h[i].Name == from
		}
	}))
	for _, tt := range []struct {
		reported, generation int64
		left                 int
	}{
		{spec.Generation, spec.Generation + 1, 1},     // it moves
		{spec.Generation, spec.Generation + 1, 1},     // its host has not received it
		{spec.Generation + 1, spec.Generation + 2, 0}, // now it has
		{spec.Generation + 2, spec.Generation + 2, 0},
	} {
		if err := s.PutStatus(t.Context(), from,
			slice.Status{Slice: "lab", Generation: tt.reported}); err != nil {
			t.Fatal(err)
		}
		if stays, err := c.Reschedule(t.Context(), nil); err != nil || len(stays) > 0 {
			t.Fatal(stays, err)
		}
		now, _, err := s.Slice(t.Context(), "lab")
		if err != nil || now.Generation != tt.generation || len(now.Node("a").Left) != tt.left ||
			now.Node("a").Host == from {
			t.Errorf("%s having reported %d: generation %d, %+v, %v", from, tt.reported, now.Generation,
				now.Node("a"), err)
		}
	}
}

func TestSlicesShareHosts(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	one := func(name string) string { return "name: " + name + "\nnodes: {a: {cpu: 5}}\n" }
	_, first := mustApply(t, c, one("first"))
	_, second := mustApply(t, c, one("second"))
	if first.Nodes[0].Host == second.Nodes[0].Host {
		t.Errorf("both on %s", first.Nodes[0].Host)
	}
	top, _ := topology.Parse("third.yaml", []byte(one("third")))
	_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
	const want = "network third: no host can take node a: h1, h2: 5 cores wanted, 3 of 8 free"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.Delete(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, c, one("third"))
}

func TestSlicesPlacedAtOnceAreNotGivenTheSameResources(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	done := make(chan error)
	for i := range 8 {
		go func() {
			top, _ := topology.Parse("lab.yaml", fmt.Appendf(nil, "name: lab%d\nnodes: {a: {cpu: 5}}\n", i))
			_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
			done <- err
		}()
	}
	fit := 0
	for range 8 {
		if err := <-done; err == nil {
			fit++
		} else if !strings.Contains(err.Error(), "no host can take node a") {
			t.Error(err)
		}
	}
	if fit != 2 {
		t.Errorf("%d slices of 5 cores on two hosts with 8", fit)
	}
}

func TestHostSettingsHaveNoEffectOutsideOfACluster(t *testing.T) {
	f := &fake{}
	c, _, _ := member(t, f)
	plan, spec := mustApply(t, c, strings.Replace(spreadChain, "[a, b, c, d]",
		"{a: {host: h7, reschedule: never}, b: , c: , d: {kind: host}}", 1))
	for _, n := range spec.Nodes {
		if n.Host != "" {
			t.Errorf("%s has host %q", n.Name, n.Host)
		}
	}
	want := []string{"the host settings of 4 nodes in the topology have no effect: this machine is in no cluster"}
	if diff := cmp.Diff(want, plan.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestSlicesOfTheTimeBeforeTheClusterStay(t *testing.T) {
	f := &fake{hosts: machines(3)}
	alone, s, bus := member(t, f)
	// alone, nobody counts
	greedy := strings.Replace(spreadChain, "reschedule: always", "reschedule: always, cpu: 7", 1)
	_, old := mustApply(t, alone, greedy)
	c := New(s, f, f, bus, InCluster(f, "h1"))
	reschedule := func() *slice.Slice {
		t.Helper()
		if stays, err := c.Reschedule(t.Context(), nil); err != nil || len(stays) > 0 {
			t.Fatal(stays, err)
		}
		spec, _, err := s.Slice(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	if spec := reschedule(); spec.Generation != old.Generation {
		t.Errorf("placed before it is known who has it: %v", hostsOf(spec))
	}
	if err := s.PutStatus(t.Context(), "h2", slice.Status{Slice: "lab", Generation: old.Generation}); err != nil {
		t.Fatal(err)
	}
	spec := reschedule()
	for _, n := range spec.Nodes {
		if n.Host != "h2" || len(n.Left) != 0 {
			t.Errorf("%s is on %q, left %v", n.Name, n.Host, n.Left)
		}
	}
	if again := reschedule(); again.Generation != spec.Generation {
		t.Error("adopted twice")
	}
	if plan, _ := mustApply(t, c, greedy); !plan.Empty() {
		t.Errorf("moved: %+v", plan)
	}
}

func TestALinkIsTreatedByTheKernelsOfItsHosts(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) { h[1].Features = nil })}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	_, spec := mustApply(t, c, pair)
	delay := time.Millisecond
	link := spec.Links[0].Name
	const want = "host h2 cannot do that to link a:eth1--b:eth1: its kernel lacks netem"
	if err := c.SetLink(t.Context(), "lab", link, api.LinkPatch{Delay: &delay}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.SetLink(t.Context(), "lab", link, api.LinkPatch{Delay: &delay, End: "a:eth1"}); err != nil {
		t.Error(err)
	}
}
