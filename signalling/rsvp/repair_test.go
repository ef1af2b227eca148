package rsvp

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/internal/tshark"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// index is the interface of router a on its link with b.
func (w *world) index(a, b int) int {
	for index, peer := range w.routers[a].peers {
		if peer.router == b {
			return index
		}
	}
	w.t.Fatalf("no link of %d and %d", a, b)
	return 0
}

// guarded is an LSP that asks for protection, and can be replaced.
func (w *world) guarded(tunnel uint16, bandwidth uint64, way ...int) Request {
	q := w.shared(tunnel, 1, bandwidth, way...)
	q.Attribute.Flags |= message.LocalProtection
	return q
}

// bypass is an LSP round the link of its first router with another one.
func (w *world) bypass(tunnel uint16, round int, way ...int) Request {
	q := w.request(tunnel, 1, 0, way...)
	q.Bypass = w.index(way[0], round)
	return q
}

// cut has both ends of a link see that it is down, or up.
func (w *world) cut(a, b int, up bool) {
	w.setLink(end{a, w.index(a, b)}, up)
	w.setLink(end{b, w.index(b, a)}, up)
}

// mustRepair has the link between routers 1 and 2 fail, and router 1 repair an LSP.
func (w *world) mustRepair(k Key) {
	w.t.Helper()
	w.run(testTick)
	w.cut(1, 2, false)
	w.run(testTick)
	w.repaired(k, 1)
}

// ladder is routers 0 to 3 in a row, and ways round: router 4 joins 1 and 2, router 5 joins 1 and 3, router 6 joins 0
// and 1.
func ladder(t testing.TB, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed, 7, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{1, 4}, [2]int{4, 2},
		[2]int{1, 5}, [2]int{5, 3}, [2]int{0, 6}, [2]int{6, 1})
	for i, n := range w.routers {
		n.config.Egress = EgressLabel((int(seed) + i) % 3)
		w.start(i)
	}
	return w
}

// repaired wants an LSP that is up by a router, which goes round a failure, and an ingress that knows it.
func (w *world) repaired(k Key, by int) {
	w.t.Helper()
	w.stayedUp(k)
	w.check()
	if s := w.routers[by].lsps[k]; s == nil || s.repair == nil {
		w.t.Fatalf("router %d does not repair %s", by, k)
	}
	count := 0
	for _, e := range w.routers[0].events {
		if e.Kind == Repaired && e.Key == k {
			count++
		}
		if e.Kind == Failed && e.Key == k {
			w.t.Errorf("told %+v", e)
		}
	}
	e, _ := w.routers[0].told(Repaired, k)
	if count != 1 || e.Error.Code != message.Notify || e.Error.Value != message.LocallyRepaired {
		w.t.Errorf("told %d times: %+v", count, e.Error)
	}
}

// protectedBy wants the flags of a router in the record that the ingress has of an LSP.
func (w *world) protectedBy(k Key, router int, flags uint8) {
	w.t.Helper()
	records := w.routers[0].lsps[k].resv.record.Records
	i := slices.IndexFunc(records, func(rec message.Record) bool { return rec.Addr == idOf(router) })
	if i < 0 || records[i].Flags != flags|message.NodeID || records[i+1].Flags != flags {
		w.t.Errorf("of router %d, want flags %#x: %+v", router, flags, records)
	}
}

// A link fails. The router before it changes labels alone, before any message is sent; then the LSP stays for as long
// as it is asked for, with no reservation lost.
func TestALinkThatFailsIsGoneRoundByLabelsAlone(t *testing.T) {
	for seed := range uint64(6) {
		w := ladder(t, seed)
		if seed%2 == 1 {
			w.reduce()
		}
		if seed%3 == 2 {
			w.sign(message.Key{ID: 5, Algorithm: message.SHA256, Secret: []byte("secret")})
		}
		k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
		w.run(testTick)
		w.protectedBy(k, 1, 0)
		b := w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
		w.run(testTick)
		w.check()
		w.protectedBy(k, 1, message.ProtectionAvailable)
		was := w.routers[1].installed[k]
		w.setLink(end{2, w.index(2, 1)}, false)
		n := w.routers[1]
		n.config.Interfaces[w.index(1, 2)-1].Down = true
		n.SetLink(w.at(n), w.index(1, 2), false)
		if len(n.out.Send) > 0 || len(n.out.Labels) != 1 {
			t.Errorf("%d messages before labels, %d labels", len(n.out.Send), len(n.out.Labels))
		}
		w.flush(1)
		first := w.routers[1].installed[b]
		if is := n.installed[k]; is.Out != was.Out || is.In != was.In || is.Bypass != first.Out ||
			is.Interface != first.Interface || is.Next != first.Next {
			t.Errorf("the entry was %+v, and is %+v", was, is)
		}
		w.check() // packets go on before anything is sent
		w.run(testTick)
		w.repaired(k, 1)
		w.protectedBy(k, 1, message.ProtectionAvailable|message.ProtectionInUse)
		if free := w.free(1, w.index(1, 4), 7); free != 1000 {
			t.Errorf("%d are left on the bypass, which has reserved nothing", free)
		}
		w.run(settled)
		w.repaired(k, 1)
		w.cut(1, 2, true)
		w.run(settled)
		w.repaired(k, 1)
		w.removeLSP(0, k)
		w.run(testTick)
		w.empty(k)
	}
}

// empty wants no state of an LSP at any router.
func (w *world) empty(k Key) {
	w.t.Helper()
	for i, n := range w.routers {
		if n.lsps[k] != nil {
			w.t.Errorf("router %d has state of %s", i, k)
		}
	}
	w.check()
}

// The ingress asks for another way as soon as it is told, and the old LSP goes away along the bypass at once.
func TestARepairedLSPIsReplacedByOneOnAnotherWay(t *testing.T) {
	w := ladder(t, 1)
	old := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.mustRepair(old)
	next := w.shared(1, 2, 400, 0, 1, 5, 3)
	next.Replaces = old.LSP
	w.mustAdd(0, next)
	w.run(testTick)
	w.stayedUp(next.Key)
	if _, replaced := w.routers[0].told(Replaced, old); !replaced {
		t.Error("not replaced")
	}
	w.empty(old)
}

// A router dies: the one before it finds out by the link, or by Hellos alone.
func TestARouterThatFailsIsGoneRound(t *testing.T) {
	for _, byHello := range []bool{false, true} {
		w := ladder(t, 2)
		w.greet(testTick)
		q := w.guarded(1, 400, 0, 1, 2, 3)
		q.Attribute.Flags |= message.WantNodeBackup
		k := w.mustAdd(0, q)
		w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
		w.mustAdd(1, w.bypass(3, 2, 1, 5, 3))
		w.run(3 * testTick)
		w.protectedBy(k, 1, message.ProtectionAvailable|message.NodeProtected)
		w.crash(2)
		if !byHello {
			w.setLink(end{1, w.index(1, 2)}, false)
			w.setLink(end{3, w.index(3, 2)}, false)
		}
		w.run(6 * testTick)
		if got := w.routers[1].lsps[k].repair; got == nil || got.bypass.key.Session.End != idOf(3) {
			t.Fatalf("by Hello %t: repaired by %+v", byHello, got)
		}
		w.run(settled)
		if at, what := w.carry(k, 0); what != "" || at.router != 3 {
			t.Errorf("by Hello %t: a packet comes to router %d: %s", byHello, at.router, what)
		}
		if _, down := w.routers[0].told(Down, k); down {
			t.Errorf("by Hello %t: it was down", byHello)
		}
		w.removeLSP(0, k)
		w.run(testTick)
		if w.routers[3].lsps[k] != nil {
			t.Errorf("by Hello %t: the egress has state", byHello)
		}
	}
}

// The egress is where the bypass ends, and asks for a label of each kind.
func TestABypassEndsAtTheEgress(t *testing.T) {
	for seed := range uint64(9) {
		w := ladder(t, seed%3)
		w.routers[5].config.Egress = EgressLabel(seed / 3)
		w.start(5)
		k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2))
		w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
		w.run(testTick)
		w.check()
		w.cut(1, 2, false)
		w.check()
		w.run(settled)
		w.repaired(k, 1)
		w.removeLSP(0, k)
		w.run(testTick)
		w.empty(k)
	}
}

// The router before the failure is the ingress itself.
func TestTheIngressRepairsItsOwnLSP(t *testing.T) {
	w := ladder(t, 2)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(0, w.bypass(2, 1, 0, 6, 1))
	w.run(testTick)
	w.cut(0, 1, false)
	w.check()
	w.run(settled)
	w.repaired(k, 0)
	if b := w.routers[1].lsps[k].backups; len(b) != 1 || b[0].key.Sender != w.address(6, 0) ||
		b[0].hop.Addr != idOf(0) {
		t.Errorf("backups %+v", b)
	}
	w.removeLSP(0, k)
	w.run(testTick)
	w.empty(k)
}

// The bypass fails while it is in use: the LSP goes by another one if there is one, else it fails as without one.
func TestABypassThatFailsIsReplacedOrEndsTheRepair(t *testing.T) {
	for _, second := range []bool{true, false} {
		w := ladder(t, 1)
		k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
		w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
		if second {
			w.mustAdd(1, w.bypass(3, 2, 1, 5, 3))
		}
		w.mustRepair(k)
		w.cut(1, 4, false)
		w.run(testTick)
		if second {
			w.repaired(k, 1)
			w.run(settled)
			w.repaired(k, 1)
			continue
		}
		e, _ := w.routers[0].told(Failed, k)
		if _, down := w.routers[0].told(Down, k); !down || e.Error.Node != w.address(2, 1) ||
			e.Error.Code != message.RoutingProblem {
			t.Errorf("told %t: %+v", down, e.Error)
		}
		w.run(settled)
		w.check()
		w.cut(1, 2, true)
		w.run(2 * testRefresh)
		if _, up := w.routers[0].installed[k]; !up {
			t.Error("it is not up with its link")
		}
		w.check()
	}
}

// Without a bypass, and without asking for one, a failure is what it was.
func TestAnLSPThatDoesNotAskIsNotProtected(t *testing.T) {
	w := ladder(t, 1)
	k := w.mustAdd(0, w.shared(1, 1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.run(testTick)
	w.cut(1, 2, false)
	w.run(testTick)
	if _, down := w.routers[0].told(Down, k); !down || w.routers[3].lsps[k] != nil {
		t.Error("it goes on")
	}
	w.check()
}

// Nothing comes from a router before the failure: what is kept for it expires.
func TestStateThatWaitsForARepairExpires(t *testing.T) {
	w := ladder(t, 1)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.run(testTick)
	w.cut(1, 2, false)
	w.run(testRefresh)
	if w.routers[2].lsps[k] == nil {
		t.Error("the state is gone before its lifetime")
	}
	w.run(lifetime(testRefresh) + time.Second)
	if w.routers[2].lsps[k] != nil || w.routers[3].lsps[k] != nil {
		t.Error("the state is there after its lifetime")
	}
	w.check()
}

// All messages of a repair are as the RFCs say: the sender, the hop and the route of the Path through the bypass.
func TestTheBackupPathIsThatOfTheRFC(t *testing.T) {
	w := ladder(t, 2)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.run(testTick)
	var path message.Message
	w.sent = func(to end, b []byte) {
		m, err := message.Decode(b)
		if err == nil && to == (end{2, w.index(2, 4)}) && m.Type == message.Path {
			path = m
		}
	}
	w.cut(1, 2, false)
	w.run(testTick)
	sender := idOf(1)
	session, _ := message.Of[message.Session](path)
	template, _ := message.Of[message.SenderTemplate](path)
	hop, _ := message.Of[message.Hop](path)
	route, _ := message.Of[message.ExplicitRoute](path)
	a, _ := message.Of[message.SessionAttribute](path)
	want := message.ExplicitRoute{Steps: []message.Step{hostStep(idOf(2)), hostStep(w.address(2, 3))}}
	if session != k.Session || template != (message.SenderTemplate{Sender: sender, LSP: 1}) || hop.Addr != sender ||
		!reflect.DeepEqual(route, want) || a.Flags != message.SharedStyle|message.LabelRecording {
		t.Errorf("%+v", path)
	}
}

// Wireshark finds nothing wrong with any message that routers send when a link fails, and when all is torn down.
func TestTsharkDecodesAllThatIsSentInARepair(t *testing.T) {
	w := ladder(t, 2)
	var names []string
	var messages [][]byte
	w.sent = func(to end, b []byte) {
		names = append(names, fmt.Sprintf("message %d, to router %d", len(names), to.router))
		messages = append(messages, slices.Clone(b))
	}
	q := w.guarded(1, 400, 0, 1, 2, 3)
	q.Attribute.Flags |= message.WantNodeBackup | message.WantBandwidthBackup
	k := w.mustAdd(0, q)
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.mustAdd(1, w.bypass(3, 2, 1, 5, 3))
	w.run(testTick)
	w.cut(1, 2, false)
	w.run(3 * testRefresh)
	w.repaired(k, 1)
	w.removeLSP(0, k)
	w.run(testTick)
	tshark.Check(t, names, messages)
}
