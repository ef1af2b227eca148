package fastpath

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/datapath/mirror/eligible"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

func TestRoutersWithPortsAreMirrored(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "h3"}, []string{"h3", "h4"})
	for _, name := range []string{"h2", "h3", "h4"} {
		s.Node(name).Kind = slice.Router
	}
	s.Node("h3").FastPath = slice.FastPathOff
	id := func(node string) sliver.ID { return sliver.ID{Slice: 7, Node: node} }
	seen := &observe.Snapshot{
		NetNS:   map[sliver.ID]uint64{id("h1"): 100, id("h2"): 101, id("h3"): 102}, // h4 has no namespace yet
		Slivers: map[sliver.ID]sliver.Observed{id("h1"): {PID: 10}, id("h2"): {PID: 11}, id("h3"): {PID: 12}},
		Legs:    map[sliver.ID]map[int]int{id("h1"): {2: 51}, id("h2"): {2: 52, 3: 53}, id("h3"): {2: 54}},
	}
	want := map[sliver.ID]Router{
		id("h2"): {Slice: 7, NetNS: 101, PID: 11, Legs: map[int]int{2: 52, 3: 53}},
		id("h3"): {Slice: 7, NetNS: 102, PID: 12, Legs: map[int]int{2: 54}, Off: true},
	}
	got := Routers([]plan.Input{{Spec: s}}, seen, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// fakeMirror notes what it is told.
type fakeMirror struct {
	routers map[string]mirror.Router
	sets    int
	refuse  error
	lost    []int
	slow    chan struct{} // closed when what was is gone; nil: at once
	closing func()

	counters mirror.Counters
	unrouted []netip.Prefix
}

func (m *fakeMirror) Set(name string, r mirror.Router) (gone <-chan struct{}, err error) {
	m.sets++
	if m.refuse != nil {
		return nil, m.refuse
	}
	r.NetNS = nil // it is closed
	m.routers[name] = r
	return m.gone(), nil
}

func (m *fakeMirror) Remove(name string) (gone <-chan struct{}) {
	delete(m.routers, name)
	return m.gone()
}

func (m *fakeMirror) gone() <-chan struct{} {
	if m.slow != nil {
		return m.slow
	}
	gone := make(chan struct{})
	close(gone)
	return gone
}

func (m *fakeMirror) Unrouted(_ string, some []netip.Prefix) (all []netip.Prefix, err error) {
	for _, p := range some {
		if slices.Contains(m.unrouted, p) {
			all = append(all, p)
		}
	}
	return all, nil
}

func (m *fakeMirror) Status(name string) (mirror.Status, error) {
	if _, known := m.routers[name]; !known && m.refuse == nil {
		return mirror.Status{}, mirror.ErrUnknown
	}
	return mirror.Status{
		Synchronised: true, Lost: m.lost, IPv4: mirror.FamilyStatus{FastPath: true}, Counters: m.counters,
	}, nil
}

func (m *fakeMirror) Close() {
	if m.closing != nil {
		m.closing()
	}
}

func (m *fakeMirror) Verify(context.Context, string) ([]mirror.Difference, error) {
	return nil, nil
}

// fakeMemory has the legs of an earlier process.
type fakeMemory struct {
	earlier, dropped []int
}

func (m *fakeMemory) Earlier() []int         { return m.earlier }
func (m *fakeMemory) DropLeg(port int) error { m.dropped = append(m.dropped, port); return nil }
func (m *fakeMemory) Reclaim() error         { return nil }
func (m *fakeMemory) Usage() fib.Usage       { return fib.Usage{} }
func (m *fakeMemory) Close() error           { return nil }

func newFastPath() *FastPath { return New(slog.New(slog.DiscardHandler), func(int) {}) }

// thisRouter is a router in the namespace of the test, whose first interface is at a port.
func thisRouter(port int) Router {
	pid := os.Getpid()
	return Router{Slice: 7, NetNS: machine.Root{}.NetNS(pid), PID: pid, Legs: map[int]int{2: port}}
}

func TestMirrorFollowsWhatIsObserved(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}}
	f := newFastPath()
	f.mirror = m
	a, b := sliver.ID{Slice: 7, Node: "a"}, sliver.ID{Slice: 7, Node: "b"}
	router := func(legs map[int]int, off bool) Router {
		r := thisRouter(0)
		r.Legs, r.Off = legs, off
		return r
	}
	f.mirrorLocked(map[sliver.ID]Router{a: router(map[int]int{2: 52}, false), b: router(map[int]int{2: 53}, true)})
	want := map[string]mirror.Router{
		"7/a": {Slice: 7, Legs: map[int]int{2: 52}}, "7/b": {Slice: 7, Legs: map[int]int{2: 53}, Off: true},
	}
	check := func(when string, sets int) {
		t.Helper()
		if diff := cmp.Diff(want, m.routers); diff != "" || m.sets != sets {
			t.Errorf("%s: %d sets, want %d; -want +got:\n%s", when, m.sets, sets, diff)
		}
	}
	check("two routers", 2)
	f.mirrorLocked(map[sliver.ID]Router{a: router(map[int]int{2: 52}, false), b: router(map[int]int{2: 53}, true)})
	check("nothing changed", 2)
	f.mirrorLocked(map[sliver.ID]Router{
		a: router(map[int]int{2: 52, 3: 60}, false), b: router(map[int]int{2: 53}, false),
	})
	want["7/a"] = mirror.Router{Slice: 7, Legs: map[int]int{2: 52, 3: 60}}
	want["7/b"] = mirror.Router{Slice: 7, Legs: map[int]int{2: 53}}
	check("a port more, and fastpath: on", 4)
	if held := f.heldLocked(); !held[52] || !held[60] || !held[53] || len(held) != 3 {
		t.Errorf("held: %v", held)
	}

	// Two captures at once: off with the first, on again after the last.
	first, second := f.Capture(b), f.Capture(b)
	want["7/b"] = mirror.Router{Slice: 7, Legs: map[int]int{2: 53}, Off: true}
	check("captures begin", 5)
	first()
	check("one capture is left", 5)
	second()
	want["7/b"] = mirror.Router{Slice: 7, Legs: map[int]int{2: 53}}
	check("captures ended", 6)

	delete(want, "7/a")
	f.Remove(a)
	check("a went", 6)
	gone := router(map[int]int{2: 53}, false)
	gone.NetNS++
	f.mirrorLocked(map[sliver.ID]Router{b: gone})
	delete(want, "7/b")
	check("b has another namespace than was observed", 6)
}

// While a router is being removed, only the caller that removes it waits, and its ports become no other node's.
func TestOnlyTheCallerThatRemovesARouterWaitsUntilItIsGone(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}}
	f := newFastPath()
	f.mirror, f.fib = m, &fakeMemory{}
	var err error
	if f.watcher, err = eligible.New(eligible.Config{}); err != nil {
		t.Fatal(err)
	}
	a, b := sliver.ID{Slice: 7, Node: "a"}, sliver.ID{Slice: 7, Node: "b"}
	held := func(want ...int) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		if got := slices.Sorted(maps.Keys(f.heldLocked())); !slices.Equal(got, want) {
			t.Errorf("held: %v, want %v", got, want)
		}
	}
	f.mirrorLocked(map[sliver.ID]Router{a: thisRouter(52), b: thisRouter(60)})
	m.slow = make(chan struct{})
	f.mirrorLocked(map[sliver.ID]Router{a: thisRouter(53), b: thisRouter(60)})
	held(52, 53, 60)
	m.refuse = errors.New("no memory")
	f.mirrorLocked(map[sliver.ID]Router{a: thisRouter(54), b: thisRouter(60)})
	held(52, 53, 54, 60)
	f.forget(a)
	held(52, 53, 54, 60)
	removed := make(chan struct{})
	go func() {
		f.Remove(a)
		close(removed)
	}()
	f.poll()
	if r := f.Router(b); !r.IPv4.On {
		t.Errorf("status of the other router: %+v", r)
	}
	select {
	case <-removed:
		t.Error("the router is said to be gone")
	default:
	}
	close(m.slow)
	<-removed
	held(60)
	m.closing = func() { f.Router(b) } // waits for ever, if close holds what it should not
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// An interface that is away asks for a pass, once; the mirror is then told again what is observed, which may be that it
// is back.
func TestLostInterfaceIsToldOnce(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}}
	f := newFastPath()
	f.mirror = m
	want := map[sliver.ID]Router{{Slice: 7, Node: "a"}: thisRouter(52)}
	f.mirrorLocked(want)
	if f.poll() {
		t.Error("a change is told, and there was none")
	}
	m.lost = []int{52}
	if !f.poll() || f.poll() {
		t.Error("a lost interface is told once")
	}
	if f.mirrorLocked(want); m.sets != 2 {
		t.Errorf("the mirror was told %d times, want 2", m.sets)
	}
	m.lost = nil
	f.poll()
	if f.mirrorLocked(want); m.sets != 2 {
		t.Errorf("the mirror was told %d times, though nothing is lost any more", m.sets)
	}
}

func TestWhatTheMirrorRefusesIsTroubleAndTriedAgain(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}, refuse: errors.New("no memory")}
	f := newFastPath()
	f.mirror = m
	a := sliver.ID{Slice: 7, Node: "a"}
	want := map[sliver.ID]Router{a: thisRouter(52)}
	f.mirrorLocked(want)
	for range troubledPolls - 1 {
		if f.poll() {
			t.Error("a trouble is told before it lasts")
		}
	}
	if !f.poll() || f.poll() {
		t.Error("a trouble that lasts is told once")
	}
	if got := f.Trouble(a); got != "no memory" {
		t.Errorf("trouble %q", got)
	}
	if r := f.Router(a); r.IPv4.On || r.Trouble != "no memory" {
		t.Errorf("status %+v", r)
	}
	if got := f.Unmirrored(a); got != "it cannot be mirrored: no memory" {
		t.Errorf("labels %q", got)
	}
	m.refuse = nil
	f.mirrorLocked(want)
	if changed, got := f.poll(), f.Trouble(a); got != "" || !changed || m.sets != 2 {
		t.Errorf("trouble %q after %d tries", got, m.sets)
	}
	if got := f.Unmirrored(a); got != "" {
		t.Errorf("labels %q, of a router with a mirror", got)
	}
	if got := f.Unmirrored(sliver.ID{Slice: 7, Node: "b"}); got != "it does not run" {
		t.Errorf("labels %q, of no router", got)
	}
}

func TestLegsOfAnEarlierServerGoWithTheirPorts(t *testing.T) {
	memory := &fakeMemory{earlier: []int{52, 61}}
	f := newFastPath()
	f.mirror, f.fib = &fakeMirror{routers: map[string]mirror.Router{}}, memory
	f.mirrorLocked(map[sliver.ID]Router{{Slice: 7, Node: "a"}: thisRouter(52)})
	f.reclaimLocked()
	if !slices.Equal(memory.dropped, []int{61}) {
		t.Errorf("dropped %v", memory.dropped)
	}
}

func TestNamespaceOfAnotherProcessIsNotMirrored(t *testing.T) {
	r := Router{NetNS: 1, PID: os.Getpid()}
	if f, err := r.open(); !errors.Is(err, netns.ErrGone) {
		t.Errorf("opened %v: %v", f, err)
	}
}

// What is wanted by now is not there before the next pass.
func TestPacketsGetALabelWhenTheMirrorHasIt(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}}
	f := newFastPath()
	f.mirror = m
	a, to := sliver.ID{Slice: 7, Node: "a"}, netip.MustParsePrefix("10.9.0.0/24")
	lsp, ruled := &slice.LSP{To: []netip.Prefix{to}}, &slice.LSP{Match: []slice.Match{{Protocol: 17}}}
	r := thisRouter(52)
	f.mirrorLocked(map[sliver.ID]Router{a: r})
	if why := f.Unlabelled(a, ruled); why != "packets are about to get its label" {
		t.Errorf("by rules, before the pass: %q", why)
	}
	if why := f.Unlabelled(a, lsp); why != "packets to 10.9.0.0/24 are about to get its label" {
		t.Errorf("before the pass: %q", why)
	}
	r.Labels.FTNs = map[netip.Prefix]uint32{to: 1}
	f.mirrorLocked(map[sliver.ID]Router{a: r})
	r.Labels.Rules = true // nothing else is other than before
	f.mirrorLocked(map[sliver.ID]Router{a: r})
	if !m.routers[a.String()].Labels.Rules {
		t.Error("the mirror does not hear that there are rules")
	}
	for _, l := range []*slice.LSP{lsp, ruled} {
		if why := f.Unlabelled(a, l); why != "" {
			t.Errorf("after it: %q", why)
		}
	}
	m.unrouted = []netip.Prefix{to}
	if why := f.Unlabelled(a, lsp); why != "has no route to 10.9.0.0/24 by other routers" {
		t.Errorf("without a route: %q", why)
	}
}
