package rsvp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// mustAdd adds an LSP that is not refused.
func (w *world) mustAdd(router int, q Request) Key {
	w.t.Helper()
	if err := w.add(router, q); err != nil {
		w.t.Fatal(err)
	}
	return q.Key
}

func (w *world) check() {
	w.t.Helper()
	if what := w.inconsistent(); what != "" {
		w.t.Fatal(what)
	}
}

// told gives the last event of a kind for an LSP.
func (n *node) told(kind string, k Key) (Event, bool) {
	for i := len(n.events) - 1; i >= 0; i-- {
		if n.events[i].Kind == kind && n.events[i].Key == k {
			return n.events[i], true
		}
	}
	return Event{}, false
}

func (w *world) free(router, index int, setup int) uint64 {
	return w.routers[router].Unreserved(index)[setup]
}

func TestAnLSPIsSetUpAlongItsRouteAndTornDown(t *testing.T) {
	w := chain(t, 5, 1000)
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3, 4))
	w.run(testTick)
	w.check()
	up, ok := w.routers[0].told(Up, k)
	if !ok {
		t.Fatal("not up after a second")
	}
	var route []string
	for _, rec := range up.Route {
		route = append(route, rec.Addr.String())
	}
	if got, want := strings.Join(route, " "), "10.0.0.2 10.0.4.2 10.0.8.2 10.0.12.2"; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
	for i := range 4 {
		if free := w.free(i, len(w.routers[i].config.Interfaces), 7); free != 600 {
			t.Errorf("router %d has %d left, want 600", i, free)
		}
	}
	w.run(10 * testRefresh)
	w.check()
	for i, n := range w.routers {
		if _, down := n.told(Down, k); down {
			t.Errorf("router %d: the LSP did not stay up", i)
		}
	}
	w.removeLSP(0, k)
	w.run(testTick)
	for i, n := range w.routers {
		if len(n.lsps) > 0 {
			t.Errorf("router %d has state a second after the teardown", i)
		}
	}
	w.check()
}

func TestStateExpiresWhenTheIngressDies(t *testing.T) {
	w := chain(t, 4, 1000)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
	w.run(testTick)
	clear(w.routers[0].wanted)
	w.start(0)
	w.run(3 * testRefresh)
	if len(w.routers[1].lsps) == 0 {
		t.Error("the state went before its lifetime")
	}
	w.run(8 * testRefresh)
	for i, n := range w.routers {
		if len(n.lsps) > 0 {
			t.Errorf("router %d still has state", i)
		}
	}
}

func TestARouterThatRestartsGetsItsStateByRefreshes(t *testing.T) {
	w := chain(t, 4, 1000)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2, 3))
	w.run(testTick)
	w.start(2)
	w.run(4 * testRefresh)
	w.check()
	if len(w.routers[2].Entries()) != 1 {
		t.Error("no entry")
	}
}

func TestMoreThanThereIsIsRefusedAndTold(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 2}, [2]int{1, 2}, [2]int{2, 3})
	first := w.mustAdd(0, w.request(1, 1, 700, 0, 2, 3))
	w.run(testTick)
	second := w.mustAdd(1, w.request(2, 1, 700, 1, 2, 3))
	w.run(testTick)
	e, ok := w.routers[1].told(Failed, second)
	if !ok || e.Error.Code != message.AdmissionFailure || e.Error.Value != message.BandwidthUnavailable ||
		e.Error.Node != w.address(1, 2) {
		t.Errorf("told %+v", e)
	}
	w.check()
	w.removeLSP(0, first)
	w.run(3 * testRefresh)
	if _, ok := w.routers[1].told(Up, second); !ok {
		t.Error("not up when there was room")
	}
	w.check()
	if err := w.add(1, w.request(3, 1, 400, 1, 2, 3)); err == nil || !strings.Contains(err.Error(),
		"300 unreserved") {
		t.Error(err)
	}
}

// TestTwoThatAskAtOnceDoNotBothGetIt has both Paths pass before a Resv comes.
func TestTwoThatAskAtOnceDoNotBothGetIt(t *testing.T) {
	w := newWorld(t, 1, 5, 1000, [2]int{0, 2}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 4})
	w.mustAdd(0, w.request(1, 1, 700, 0, 2, 3, 4))
	w.mustAdd(1, w.request(2, 1, 700, 1, 2, 3, 4))
	w.run(testTick)
	w.check()
	ups := 0
	for i, tunnel := range []uint16{1, 2} {
		if _, ok := w.routers[i].told(Up, w.request(tunnel, 1, 0, i, 2, 3, 4).Key); ok {
			ups++
		}
	}
	if ups != 1 {
		t.Errorf("%d are up, want 1", ups)
	}
}

func TestABetterSetUpPriorityPreempts(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 2}, [2]int{1, 2}, [2]int{2, 3})
	low := w.request(1, 1, 700, 0, 2, 3)
	low.Attribute.Setup, low.Attribute.Holding = 6, 5
	w.mustAdd(0, low)
	w.run(testTick)
	high := w.request(2, 1, 700, 1, 2, 3)
	w.mustAdd(1, high)
	w.run(testTick)
	w.check()
	if _, ok := w.routers[1].told(Up, high.Key); !ok {
		t.Error("the better one is not up")
	}
	e, _ := w.routers[0].told(Failed, low.Key)
	if e.Error.Code != message.PolicyFailure || e.Error.Value != message.FlowPreempted {
		t.Errorf("the other one was told %+v", e)
	}
	if _, ok := w.routers[0].told(Down, low.Key); !ok {
		t.Error("the other one was not told that it is down")
	}
	equal := w.request(3, 1, 700, 0, 2, 3)
	w.mustAdd(0, equal)
	w.run(testTick)
	if _, ok := w.routers[0].told(Up, equal.Key); ok {
		t.Error("an equal priority pre-empted")
	}
}

// TestMakeBeforeBreakSharesTheReservation has room for one of the two LSPs alone.
func TestMakeBeforeBreakSharesTheReservation(t *testing.T) {
	w := chain(t, 4, 1000)
	old := w.request(1, 1, 700, 0, 1, 2, 3)
	old.Attribute.Flags = message.SharedStyle
	w.mustAdd(0, old)
	w.run(testTick)
	larger := w.request(1, 2, 900, 0, 1, 2, 3)
	larger.Attribute.Flags, larger.Replaces = message.SharedStyle, 1
	w.mustAdd(0, larger)
	w.run(testTick)
	w.check()
	if _, ok := w.routers[0].told(Replaced, old.Key); !ok {
		t.Fatal("not replaced")
	}
	if got := w.free(1, 2, 7); got != 100 {
		t.Errorf("%d are left, want 100", got)
	}
	tooMuch := w.request(1, 3, 1100, 0, 1, 2, 3)
	tooMuch.Attribute.Flags, tooMuch.Replaces = message.SharedStyle, 2
	if err := w.routers[0].Add(w.now, tooMuch); err == nil {
		t.Error("more than there is was not refused")
	}
	w.run(testRefresh)
	w.check()
	if w.routers[0].lsps[larger.Key] == nil {
		t.Error("the LSP that was to be replaced is gone")
	}
}

func TestRoutesThatAreWrongAreRefusedByName(t *testing.T) {
	w := chain(t, 4, 1000)
	a, b := w.request(1, 1, 0, 0, 1, 2, 3), w.request(2, 1, 0, 0, 1, 2, 3)
	a.Route = append(a.Route[:1:1], a.Route[2]) // router 3 is no neighbour of router 1
	w.mustAdd(0, a)
	back := w.address(1, 0)
	b.Route = append(b.Route[:1:1], message.Step{Prefix: netip.PrefixFrom(back, 32)})
	w.mustAdd(0, b)
	w.run(testTick)
	for k, want := range map[Key]uint16{a.Key: message.BadStrictNode, b.Key: message.RouteLoop} {
		if e, _ := w.routers[0].told(Failed, k); e.Error.Code != message.RoutingProblem ||
			e.Error.Value != want {
			t.Errorf("%s: told %+v, want value %d", k, e, want)
		}
	}
}

// TestMessagesOfOthersChangeNothing sends what a neighbour that is not on the LSP's way could send.
func TestMessagesOfOthersChangeNothing(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{1, 3})
	k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(testTick)
	hop := message.Hop{Addr: w.address(1, 3), Handle: 2}
	spec := message.Flowspec{Service: message.ControlledLoad}
	for _, m := range []message.Message{
		{Type: message.PathTear, TTL: 9, Objects: []message.Object{k.Session, hop, k.template()}},
		{Type: message.ResvTear, TTL: 9, Objects: []message.Object{k.Session, hop, message.FixedFilter,
			k.filter()}},
		{Type: message.Resv, TTL: 9, Objects: []message.Object{k.Session, hop, message.FixedFilter, spec,
			k.filter(),
			message.Label(99)}},
		{Type: message.PathErr, TTL: 9, Objects: []message.Object{k.Session, message.ErrorSpec{Node: hop.Addr,
			Flags: message.PathStateRemoved, Code: message.RoutingProblem}, k.template()}},
	} {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		before := w.routers[1].Counters.Foreign
		w.routers[1].Receive(w.now, arrived(3, hop.Addr, b))
		w.flush(1)
		if got := w.routers[1].Counters.Foreign; got != before+1 {
			t.Errorf("%s: counted %d times", m.Type, got-before)
		}
	}
	w.run(testTick)
	w.check()
	if len(w.routers[1].Entries()) != 1 {
		t.Error("the LSP is gone")
	}
}

func TestAPathWithAnUnknownObjectIsAnswered(t *testing.T) {
	w := chain(t, 2, 1000)
	k := w.request(1, 1, 0, 0, 1).Key
	b, err := (message.Message{Type: message.Path, TTL: 9, Objects: []message.Object{k.Session, message.Hop{
		Addr: w.address(1, 0)}, message.Unknown{Class: 99, CType: 1},
		message.LabelRequest{EtherType: etherTypeIPv4},
		k.template(), message.SenderTspec{}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.routers[1].Receive(w.now, arrived(1, w.address(1, 0), b))
	out := w.routers[1].Take()
	if len(out.Send) != 1 {
		t.Fatalf("%+v", out)
	}
	m, err := message.Decode(out.Send[0].Message)
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := message.Of[message.ErrorSpec](m); m.Type != message.PathErr || e.Code != message.UnknownClass {
		t.Errorf("answered %+v", m)
	}
}

func TestClocksThatJumpBackDoNotStopTimers(t *testing.T) {
	w := chain(t, 3, 1000)
	w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
	w.run(testTick)
	w.jump(1, -time.Hour)
	w.run(10 * testRefresh)
	w.check()
	if len(w.routers[2].Entries()) != 1 {
		t.Error("refreshes stopped")
	}
}

func TestAHoldingPriorityThatChangesIsCounted(t *testing.T) {
	w := chain(t, 3, 1000)
	q := w.request(1, 1, 400, 0, 1, 2)
	k := w.mustAdd(0, q)
	w.run(testTick)
	if free := w.routers[1].Unreserved(2); free[3] != 1000 || free[4] != 600 {
		t.Errorf("unreserved %v", free)
	}
	s := w.routers[0].lsps[k]
	q.Attribute.Holding = 1
	s.path.rest = []message.Object{q.Attribute}
	w.routers[0].sendPath(s)
	w.flush(0)
	w.run(testTick)
	if free := w.routers[1].Unreserved(2); free[0] != 1000 || free[1] != 600 {
		t.Errorf("unreserved %v", free)
	}
}

func TestAPathFromAnAddressOffTheLinkIsRefused(t *testing.T) {
	w := chain(t, 2, 1000)
	k := w.request(1, 1, 0, 0, 1).Key
	b, err := (message.Message{Type: message.Path, TTL: 9, Objects: []message.Object{k.Session, message.Hop{
		Addr: netip.MustParseAddr("203.0.113.1")}, message.LabelRequest{EtherType: etherTypeIPv4}, k.template(),
		message.SenderTspec{}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.routers[1].Receive(w.now, arrived(1, w.address(1, 0), b))
	if n := w.routers[1]; n.Counters.Foreign != 1 || len(n.lsps) > 0 || len(n.Take().Send) > 0 {
		t.Errorf("%+v", n.Counters)
	}
}
