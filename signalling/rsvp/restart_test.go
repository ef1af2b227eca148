package rsvp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

const (
	testHello    = time.Second
	testRestart  = 90 * time.Second
	testRecovery = 40 * time.Second
)

// graceful is a chain of four routers whose state lasts, with LSPs that begin, pass and end at each of them, and the
// entries that are installed. With an odd seed they summarize refreshes.
func graceful(t *testing.T, seed uint64) (*world, []map[Key]Entry) {
	t.Helper()
	w := newWorld(t, seed, 4, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3})
	w.greet(testHello)
	w.last(testRestart, testRecovery)
	if seed%2 == 1 {
		w.reduce()
	}
	for i, n := range w.routers {
		n.config.Egress = EgressLabel(i % 3)
		w.start(i)
	}
	for tunnel, way := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 3}, {2, 1, 0}, {2, 3}, {0, 1, 2}, {1, 0}} {
		q := w.request(uint16(tunnel), 1, 200, way...)
		q.Attribute.Flags = uint8(tunnel%2) * message.SharedStyle
		w.mustAdd(way[0], q)
	}
	w.run(5 * testTick)
	w.check()
	return w, w.snapshot()
}

// snapshot is what is installed at all routers.
func (w *world) snapshot() (all []map[Key]Entry) {
	for _, n := range w.routers {
		all = append(all, maps.Clone(n.installed))
	}
	return all
}

// unchanged wants what was installed, and nothing torn down or told to have failed in between.
func (w *world) unchanged(before []map[Key]Entry) {
	w.t.Helper()
	for i, n := range w.routers {
		for _, k := range sortedKeys(before[i]) {
			if n.installed[k] != before[i][k] {
				w.t.Errorf("router %d: before\n%+v, after\n%+v", i, before[i][k], n.installed[k])
			}
		}
		for _, e := range n.events {
			if e.Kind == Down || e.Kind == Failed || e.Kind == Lost {
				w.t.Errorf("router %d: told %+v", i, e)
			}
		}
	}
}

// never wants no message of some kinds sent from now on.
func (w *world) never(t *testing.T, kinds ...message.Type) {
	t.Helper()
	w.sent = func(to end, b []byte) {
		if kind := message.Type(b[1]); slices.Contains(kinds, kind) {
			m, _ := message.Decode(b)
			t.Errorf("router %d was sent %+v", to.router, m)
		}
	}
}

// A router in the middle, at the ingress and at the egress of LSPs is killed, and comes back within its restart time:
// at once, when its neighbours have found it silent, and when state would have expired without being kept.
func TestARestartChangesNoLabelAndNoReservation(t *testing.T) {
	type restart struct {
		router  int
		seed    uint64
		silent  time.Duration
		unnamed bool
	}
	var all []restart
	for at := range 8 {
		for _, silent := range []time.Duration{0, 6 * time.Second, 80 * time.Second} {
			all = append(all, restart{at % 4, uint64(at / 4), silent, false})
			if silent > 0 { // before the first Hello, a refresh cannot be told from a set-up
				all = append(all, restart{at % 4, uint64(at / 4), silent, true})
			}
		}
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			w, before := graceful(t, c.seed)
			w.never(t, message.PathErr, message.ResvErr, message.PathTear, message.ResvTear)
			w.crash(c.router)
			w.run(c.silent)
			w.resume(c.router, c.unnamed)
			w.run(5 * testTick)
			w.unchanged(before)
			w.run(settled)
			w.unchanged(before)
			w.check()
		})
	}
}

// All routers at once, or neighbours one after the other, with messages that are lost.
func TestSeveralRestartsChangeNoLabel(t *testing.T) {
	for seed := range uint64(20) {
		w, before := graceful(t, seed)
		w.loss = 0.2
		for i := range w.routers {
			w.crash(i)
			w.run(time.Duration(w.random.Int64N(int64(3 * time.Second))))
		}
		for i := range w.routers {
			w.run(time.Duration(w.random.Int64N(int64(3 * time.Second))))
			w.resume(i, false)
		}
		w.run(testRecovery)
		w.loss = 0
		w.run(settled)
		w.unchanged(before)
		w.check()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// What nobody asks for after the restart is removed when the time of recovery ends, and is free; until then it is not.
func TestEntriesThatNobodyClaimsAreRemoved(t *testing.T) {
	w := chain(t, 3, 1000)
	w.greet(testHello)
	w.last(testRestart, testRecovery)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(3 * testTick)
	before := w.routers[1].installed[k]
	w.crash(0)
	delete(w.routers[0].wanted, k)
	w.crash(1)
	w.run(testTick)
	w.resume(1, false)
	w.start(0) // it knows of nothing, and sends no Path
	w.run(testRecovery - 2*testTick)
	if got := w.routers[1].installed[k]; got != before {
		t.Errorf("in the time of recovery: %+v", got)
	}
	if free := w.free(1, 2, 7); free != 600 {
		t.Errorf("in the time of recovery %d are unreserved, want 600", free)
	}
	if err := w.add(1, w.request(2, 1, 700, 1, 2)); err == nil {
		t.Error("what is held for an LSP that may come back was given to another one")
	}
	delete(w.routers[1].wanted, w.request(2, 1, 0, 1, 2).Key)
	w.run(3 * testTick)
	if _, there := w.routers[1].installed[k]; there {
		t.Error("after the time of recovery it is there")
	}
	if len(w.routers[2].lsps) > 0 {
		t.Error("the next router was not told")
	}
	if free := w.free(1, 2, 7); free != 1000 {
		t.Errorf("after the time of recovery %d are unreserved", free)
	}
	w.check()
}

// A neighbour that does not come back is given up when its restart time has passed, and not before.
func TestASilentNeighbourIsAwaitedForItsRestartTime(t *testing.T) {
	w, before := graceful(t, 1)
	w.never(t, message.Path, message.Resv, message.Srefresh)
	silent := w.sent
	w.sent = func(to end, b []byte) {
		if to.router == 2 && w.routers[1].awaits(place{2, w.address(1, 2)}) {
			silent(to, b)
		}
	}
	w.crash(2)
	w.run(testRestart)
	if got := w.snapshot(); !maps.Equal(got[1], before[1]) || !maps.Equal(got[3], before[3]) {
		t.Error("a neighbour changed its entries while it waited")
	}
	if e := w.routers[1].events; !slices.ContainsFunc(e, func(e Event) bool { return e.Kind == Restarting }) {
		t.Errorf("told %+v", e)
	}
	w.sent = nil
	w.run(5 * testTick)
	for k, e := range w.routers[1].installed {
		if e.HasOut && e.Interface == 2 {
			t.Errorf("%s still goes on there", k)
		}
	}
	if e := w.routers[1].events; !slices.ContainsFunc(e, func(e Event) bool { return e.Kind == Lost }) {
		t.Errorf("told %+v", e)
	}
	w.start(2)
	w.run(settled)
	w.check()
}

// Hellos that are lost for a while are no restart: nothing is taken back.
func TestANeighbourThatComesBackWithItsStateKeepsAll(t *testing.T) {
	w, before := graceful(t, 1)
	w.loss = 1
	w.run(testRestart / 2)
	w.loss = 0
	w.run(3 * testTick)
	for i, n := range w.routers {
		for _, e := range n.events {
			if e.Kind == Restarted {
				t.Errorf("router %d: told %+v", i, e)
			}
		}
	}
	w.run(settled)
	w.unchanged(before)
	w.check()
}

// Routes come back later than RSVP: an LSP without a route goes on where its entry leads.
func TestAnEntryLeadsWhereRoutesAreNotBackYet(t *testing.T) {
	w := chain(t, 3, 1000)
	w.greet(testHello)
	w.last(testRestart, testRecovery)
	routed := true
	for i := range 2 {
		w.routers[i].config.Route = func(netip.Addr) (int, netip.Addr, bool) {
			return len(w.routers[i].config.Interfaces), w.address(i, i+1), routed
		}
		w.start(i)
	}
	q := w.request(1, 1, 400, 0, 1, 2)
	q.Route = nil
	w.mustAdd(0, q)
	w.run(3 * testTick)
	before := w.snapshot()
	routed = false
	for i := range 2 {
		w.crash(i)
	}
	w.run(testTick)
	for i := range 2 {
		w.resume(i, false)
	}
	w.run(10 * testTick)
	routed = true
	w.run(settled)
	w.unchanged(before)
	w.check()
}

// An LSP is torn down while the router knows only its entry.
func TestATeardownReachesAnEntry(t *testing.T) {
	w := chain(t, 4, 1000)
	w.greet(testHello)
	w.last(testRestart, testRecovery)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
	w.run(3 * testTick)
	w.crash(1)
	w.resume(1, false)
	w.removeLSP(0, k)
	w.run(testTick)
	for i, n := range w.routers {
		if len(n.lsps)+len(n.installed) > 0 {
			t.Errorf("router %d: %d LSPs, %d entries", i, len(n.lsps), len(n.installed))
		}
	}
	w.crash(0)
	w.run(testTick)
	w.resume(0, false)
	w.run(testRecovery + testTick)
	w.check()
}

// A link that went down while the router was away takes its entries with it.
func TestEntriesByALinkThatIsDownAreNotKept(t *testing.T) {
	w := chain(t, 3, 1000)
	w.greet(testHello)
	w.last(testRestart, testRecovery)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(3 * testTick)
	w.crash(1)
	w.setLink(w.links[1][0], false)
	w.resume(1, false)
	if len(w.routers[1].installed) > 0 {
		t.Error("at the start")
	}
	w.setLink(w.links[1][0], true)
	w.run(settled)
	w.crash(1)
	w.resume(1, false)
	w.setLink(w.links[1][0], false)
	if len(w.routers[1].installed) > 0 {
		t.Error("after the start")
	}
	w.setLink(w.links[1][0], true)
	w.run(settled)
	w.check()
}

func TestEntriesThatContradictEachOtherAreNotAdopted(t *testing.T) {
	w := chain(t, 3, 1000)
	k := w.request(1, 1, 0, 0, 1, 2).Key
	whole := Entry{Key: k, HasIn: true, HasOut: true, In: 16, Out: 17, From: 1, Interface: 2, Next: w.address(1, 2)}
	other, bare, null := whole, whole, whole
	other.Key.LSP = 7
	bare.Key, bare.HasIn = Key{}, false
	null.Key, null.In = Key{}, message.IPv4ExplicitNull
	for name, entries := range map[string][]Entry{"one LSP": {whole, whole}, "one label": {whole, other},
		"no LSP and no label": {bare}, "no LSP and a label of all": {null}, "nothing": {{Key: k}}} {
		w.start(1)
		if err := w.routers[1].Adopt(0, entries); err == nil || w.routers[1].recovering() {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.start(1)
	if err := w.routers[1].Adopt(0, []Entry{whole}); err != nil {
		t.Error(err)
	}
	if err := w.routers[1].Adopt(0, nil); err == nil {
		t.Error("adopted twice")
	}
	if got := w.routers[1].Entries(); len(got) != 1 || got[0] != whole {
		t.Errorf("entries %+v", got)
	}
}

// What entries hold together may be counted too high, as it is not told that two of them share it: that is no reason to
// refuse what is installed.
func TestWhatIsInstalledNeedsNoAdmission(t *testing.T) {
	w := chain(t, 3, 1000)
	for number := range uint16(2) {
		q := w.request(1, number+1, 700, 0, 1, 2)
		q.Attribute.Flags = message.SharedStyle
		w.mustAdd(0, q)
	}
	w.run(testTick)
	w.check()
	before := w.snapshot()
	for k, e := range w.routers[1].installed {
		e.Shared = false
		w.routers[1].installed[k] = e
	}
	w.crash(1)
	w.resume(1, false)
	w.run(settled)
	w.unchanged(before)
	w.check()
}

// Of entries whose LSPs are not known, it is not known either who shares bandwidth with whom: each holds its own.
func TestEntriesWithoutAnLSPShareNothing(t *testing.T) {
	w := chain(t, 3, 1000)
	for tunnel := range uint16(2) {
		q := w.request(tunnel, 1, 300, 0, 1, 2)
		q.Attribute.Flags = message.SharedStyle
		w.mustAdd(0, q)
	}
	w.run(testTick)
	w.crash(1)
	w.resume(1, true)
	if free := w.free(1, 2, 7); free != 400 {
		t.Errorf("%d are left, want 400", free)
	}
}
