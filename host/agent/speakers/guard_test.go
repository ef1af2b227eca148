package speakers

import (
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// bypasses are those of what a router has asked for.
func (d *deaf) bypasses() (all []rsvp.Request) {
	for _, q := range d.added {
		if q.Bypass != 0 {
			all = append(all, q)
		}
	}
	return all
}

// Each router has a bypass round each of its links to one other router, where an LSP of the network wants it.
func TestLinksAreGuardedWhereAnLSPWantsIt(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	d.Sync(d.path, ofAll(s))
	if n := len(d.all["b"].bypasses()); n > 0 {
		t.Errorf("b asks for %d bypasses, and no LSP wants any", n)
	}
	s.LSP("free").Signal.Protect = slice.ProtectLink
	d.Sync(d.path, ofAll(s))
	b := d.all["b"]
	asked := b.bypasses()
	if len(asked) != 2 {
		t.Fatalf("b asks for %+v, want one for each of its links", asked)
	}
	for _, q := range asked {
		want := ofAll(s)[node("b")]
		local := want.Interfaces[q.Bypass].Prefix.Addr()
		if q.Key.Session.Extended != local || len(q.Route) != 3 {
			t.Errorf("round %s: %+v", local, q)
		}
		if _, written := want.key(rsvp.Entry{Key: q.Key, HasOut: true, Out: 20_000}); written {
			t.Error("a bypass has an FTN")
		}
	}
	d.Sync(d.path, ofAll(s))
	if len(b.bypasses()) != 2 {
		t.Error("the same are asked for again")
	}
	// One that fails is asked for again, but not at once.
	b.router.event(rsvp.Event{Kind: rsvp.Failed, Key: asked[0].Key})
	b.router.event(rsvp.Event{Kind: rsvp.Up, Key: asked[1].Key})
	d.Sync(d.path, ofAll(s))
	if n := len(b.bypasses()); n != 2 {
		t.Errorf("after a failure %d are asked for at once", n)
	}
	d.at = d.at.Add(2 * longestPause)
	d.Sync(d.path, ofAll(s))
	if n := len(b.bypasses()); n != 3 || len(b.removed) != 1 {
		t.Errorf("after a failure %d are asked for, and %d removed", n, len(b.removed))
	}
	// So is one that neither comes up nor fails: a router on its way does not answer.
	d.at = d.at.Add(setUpTime)
	d.Sync(d.path, ofAll(s))
	if n := len(b.bypasses()); n != 4 || len(b.removed) != 2 {
		t.Errorf("when nobody answers %d are asked for, and %d removed", n, len(b.removed))
	}
	for _, q := range b.bypasses()[3:] {
		b.router.event(rsvp.Event{Kind: rsvp.Up, Key: q.Key})
	}
	d.at = d.at.Add(setUpTime)
	d.Sync(d.path, ofAll(s))
	if n := len(b.bypasses()); n != 4 {
		t.Errorf("%d are asked for, and all are up", n)
	}
	s.LSP("free").Signal.Protect = ""
	d.Sync(d.path, ofAll(s))
	if len(b.removed) != 4 {
		t.Errorf("when no LSP wants them, %v are removed", b.removed)
	}
}

// A bypass that a router refuses, or does not answer, goes by another one next. One that is up stays when it hears of
// an error.
func TestBypassesAvoidWhatHasFailed(t *testing.T) {
	s := resolved(t, `name: lab
addressing: {ipv6: false}
nodes: {a: {routing: ospf}, b: {routing: ospf}, c: {routing: ospf}, d: {routing: ospf}}
links: [[a, b], [a, c], [c, b], [a, d], [d, b]]
lsps:
  - {name: free, path: [a, b], bandwidth: 1Mbit, protect: link}
`, nil)
	d := newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	d.Sync(d.path, ofAll(s))
	a := d.all["a"]
	local := s.Node("a").Interface("eth1").Addresses[0].Addr()
	count := 0
	bypass := func() (last rsvp.Request) { // round the link to b
		t.Helper()
		d.at = d.at.Add(longestPause)
		d.Sync(d.path, ofAll(s))
		count = 0
		for _, q := range a.bypasses() {
			if q.Key.Session.Extended == local {
				last = q
				count++
			}
		}
		return last
	}
	by := func(q rsvp.Request) string {
		t.Helper()
		if len(q.Route) < 2 {
			t.Fatalf("no way: %+v", q)
		}
		name, _, _ := strings.Cut(routerOf(s, q.Route[0].Prefix.Addr()), ":")
		return name
	}
	first := bypass()
	refused := message.ErrorSpec{Node: first.Route[0].Prefix.Addr(), Code: message.AdmissionFailure}
	a.router.event(rsvp.Event{Kind: rsvp.Failed, Key: first.Key, Error: refused})
	second := bypass()
	if by(second) == by(first) {
		t.Errorf("after a failure by %s, by %s again", by(first), by(second))
	}
	third := bypass() // nobody has answered
	if by(third) == by(second) {
		t.Errorf("by %s again, which does not answer", by(third))
	}
	a.router.event(rsvp.Event{Kind: rsvp.Up, Key: third.Key})
	before := count
	a.router.event(rsvp.Event{Kind: rsvp.Failed, Key: third.Key, Error: refused})
	if bypass(); count != before {
		t.Error("one that is up is given up for an error")
	}
	a.router.event(rsvp.Event{Kind: rsvp.Down, Key: third.Key})
	if bypass(); count == before {
		t.Error("one that is down is not asked for again")
	}
}

// An LSP that goes round a failure is replaced by one on another way, and stays until that is up.
func TestARepairedLSPIsAskedForByAnotherWay(t *testing.T) {
	s := agenttest.Resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	l := s.LSP("free")
	l.Signal.Protect, l.Signal.Bandwidth = slice.ProtectLink, 0
	var tunnel tunnel
	now := time.Now()
	next := func() (*version, []rsvp.Key) {
		v, remove, _ := tunnel.next(r, l, now, func() *te.Database { return empty(r) })
		if v != nil {
			tunnel.versions = append(tunnel.versions, v)
		}
		return v, remove
	}
	first, _ := next()
	if first.request.Attribute.Flags&message.LocalProtection == 0 {
		t.Error("protection is not asked for")
	}
	tunnel.handle(rsvp.Event{Kind: rsvp.Up, Key: first.request.Key}, s, now)
	if v, _ := next(); v != nil {
		t.Errorf("asked for %+v, though it is up", v)
	}
	failed := message.ErrorSpec{Node: s.Node("b").Loopbacks[0].Addr(), Code: message.Notify, Value: 3}
	tunnel.handle(rsvp.Event{Kind: rsvp.Repaired, Key: first.request.Key, Error: failed}, s, now)
	second, remove := next()
	if second == nil || second.request.Replaces != first.request.Key.LSP || len(remove) > 0 || !tunnel.isUp() {
		t.Fatalf("asked for %+v, and removed %v", second, remove)
	}
	for _, router := range second.path.Routers() {
		if router == "b" {
			t.Errorf("the other way is by %v, too", second.path.Routers())
		}
	}
}
