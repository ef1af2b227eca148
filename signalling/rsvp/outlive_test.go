package rsvp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// mustEnd fails if routers still have an LSP after its lifetime, and a little more.
func (w *world) mustEnd(k Key, since time.Duration) {
	w.t.Helper()
	w.run(max(0, since+2*lifetime(testRefresh)-w.now))
	for i, n := range w.routers {
		if n.lsps[k] != nil {
			w.t.Errorf("router %d has an LSP %v after its ingress tore it down", i, w.now-since)
		}
	}
}

// An LSP whose end nobody could tell does not live on by a link that fails again and again.
func TestAFlappingLinkKeepsNothing(t *testing.T) {
	w := ladder(t, 1)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.run(testTick)
	w.cut(1, 2, false)
	w.run(testTick)
	w.removeLSP(0, k)
	since := w.now
	for w.now-since < 3*lifetime(testRefresh) {
		w.cut(1, 2, true)
		w.run(lifetime(testRefresh) / 4)
		w.cut(1, 2, false)
		w.run(lifetime(testRefresh) / 4)
	}
	w.mustEnd(k, since)
}

// Nor by a neighbour that is silent, once or again and again.
func TestASilentNeighbourKeepsNothing(t *testing.T) {
	for _, times := range []int{1, 5} {
		for _, protected := range []bool{false, true} {
			w := chain(t, 3, 1000)
			for i, n := range w.routers {
				n.config.Hello, n.config.Restart = testTick, 10*time.Minute
				w.start(i)
			}
			q := w.shared(1, 1, 400, 0, 1, 2)
			if protected {
				q = w.guarded(1, 400, 0, 1, 2)
			}
			k := w.mustAdd(0, q)
			w.mustAdd(0, w.shared(5, 1, 10, 0, 1, 2)) // so that they stay neighbours
			w.run(5 * testTick)
			w.loss = 1
			w.removeLSP(0, k)
			var since time.Duration
			for range times {
				w.loss = 1
				w.run(5 * testTick)
				w.loss = 0
				since = w.now
				w.run(lifetime(testRefresh) / 8)
			}
			w.mustEnd(k, since)
		}
	}
}

// What is for routers beyond a bypass has other keys than what a neighbour sends, and does not come in its bundles.
func TestBundlesBringNothingFromBeyond(t *testing.T) {
	w := ladder(t, 2)
	w.sign(message.Key{ID: 5, Algorithm: message.SHA256, Secret: []byte("secret")})
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.mustRepair(k)
	s := w.routers[1].lsps[k]
	label := s.resv.out
	b := w.routers[2].lsps[k].backups[0]
	for _, c := range []struct {
		at, from int
		message  message.Message
	}{
		{1, 0, message.Message{Type: message.Resv, TTL: 1, Objects: []message.Object{
			k.Session, message.Hop{Addr: idOf(2)}, message.TimeValues{Milliseconds: 1000},
			s.resv.style, s.resv.flowspec, s.repair.key.filter(), message.Label(777),
		}}},
		{2, 3, message.Message{Type: message.PathTear, TTL: 1, Objects: []message.Object{
			k.Session, message.Hop{Addr: b.hop.Addr, Handle: b.hop.Handle}, b.key.template(), s.path.tspec,
		}}},
	} {
		n := w.routers[c.at]
		before := n.Counters.Forged
		bundle := message.Message{Type: message.Bundle, TTL: 1, Bundled: []message.Message{c.message}}
		sent, err := bundle.Sign(n.config.Interfaces[0].Keys[0], 1<<60, 0)
		if err != nil {
			t.Fatal(err)
		}
		n.Receive(w.now, Packet{Interface: w.index(c.at, c.from), Source: w.address(c.at, c.from), TTL: 1,
			Message: sent})
		if n.Counters.Forged != before+1 {
			t.Errorf("router %d: %+v", c.at, n.Counters)
		}
	}
	if s.resv.out != label || len(w.routers[2].lsps[k].backups) != 1 {
		t.Errorf("the label is %d, was %d; %d backups", s.resv.out, label, len(w.routers[2].lsps[k].backups))
	}
}

// The router where a bypass ends hears of an LSP's end also without the bypass.
func TestTheMergePointHearsOfTheEndWithoutTheBypass(t *testing.T) {
	w := ladder(t, 1)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	b := w.mustAdd(1, w.bypass(2, 2, 1, 4, 2))
	w.mustRepair(k)
	w.removeLSP(1, b)
	w.run(testTick)
	for i, n := range w.routers[1:4] {
		if n.lsps[k] != nil {
			t.Errorf("router %d still has it", i+1)
		}
	}
}

// A bypass is chosen by what the record says of the router where it ends, and of no other; and that is not one before
// this router.
func TestBypassesThatARecordDoesNotName(t *testing.T) {
	w := ladder(t, 1)
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(1, w.bypass(2, 2, 1, 0, 6))
	w.run(testTick)
	s := w.routers[1].lsps[k]
	name := func(i int) message.Record { return message.Record{Addr: idOf(i), Flags: message.NodeID} }
	label := message.Record{IsLabel: true, Label: 20, Flags: message.GlobalLabel}
	for what, c := range map[string]struct {
		before, behind []message.Record
		want           bool
	}{
		"it is there":          {nil, []message.Record{name(2), label, name(6), label}, true},
		"it has told no label": {nil, []message.Record{name(6), name(2), label}, false},
		"it is not there":      {nil, []message.Record{name(2), label}, false},
		"it is before this router": {[]message.Record{name(6), label},
			[]message.Record{name(2), label, name(6), label}, false},
	} {
		s.path.record = &message.RecordRoute{Records: c.before}
		s.resv.record = &message.RecordRoute{Records: c.behind}
		if d, ok := w.routers[1].detour(s, false); ok != c.want {
			t.Errorf("%s: %v, %+v", what, ok, d)
		}
	}
}

// An LSP goes once with its bypass, which leaves by the link that it comes by: it has lost its protection since.
func TestALinkTakesAnLSPAndItsBypass(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{0, 2})
	for i, n := range w.routers {
		n.config.Egress, n.config.Hello = OwnLabel, testTick
		w.start(i)
	}
	k := w.mustAdd(0, w.guarded(1, 400, 0, 1, 2, 3))
	w.mustAdd(0, w.shared(5, 1, 10, 0, 1)) // so that they stay neighbours
	w.mustAdd(1, w.bypass(2, 2, 1, 0, 2))
	w.mustRepair(k)
	s := w.routers[0].lsps[k]
	a := s.path.priority
	a.Flags &^= message.LocalProtection
	s.path.priority, s.path.rest = a, []message.Object{a}
	w.run(3 * testRefresh)
	w.cut(0, 1, false)
	w.check()
}

// An LSP of others that comes and leaves by one interface ends with it, whether its route is strict or loose.
func TestAnLSPThatComesAndLeavesByOneInterface(t *testing.T) {
	address := netip.MustParseAddr
	for _, loose := range []bool{false, true} {
		out := 1
		c := Config{ID: address("192.0.2.1"), Refresh: testRefresh, Random: func() uint64 { return 5 },
			FirstLabel: 16, LastLabel: 99, Interfaces: []Interface{
				{Index: 1, Prefix: netip.MustParsePrefix("10.0.0.1/24"), Bandwidth: 1000},
				{Index: 2, Prefix: netip.MustParsePrefix("10.1.0.1/24"), Bandwidth: 1000}}}
		c.Route = func(netip.Addr) (int, netip.Addr, bool) {
			if out == 1 {
				return 1, address("10.0.0.3"), true
			}
			return 2, address("10.1.0.3"), true
		}
		r, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		ingress, end := address("192.0.2.9"), address("192.0.2.3")
		k := Key{Session: message.Session{End: end, Tunnel: 1, Extended: ingress}, Sender: ingress, LSP: 1}
		a := message.SessionAttribute{Setup: 4, Holding: 4,
			Flags: message.LocalProtection | message.LabelRecording | message.SharedStyle}
		spec := message.SenderTspec{Bucket: message.Bucket{Rate: 400, Size: 1500, Peak: 400, MinPoliced: 20,
			MaxPacket: 1500}}
		steps := []message.Step{hostStep(address("10.0.0.1")), hostStep(address("10.0.0.3"))}
		if loose {
			steps[1] = hostStep(end)
			steps[1].Loose = true
		}
		now := time.Second
		hear := func(from netip.Addr, m message.Message) {
			b, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			r.Receive(now, Packet{Interface: 1, Source: from, TTL: m.TTL, Message: b})
		}
		period := message.TimeValues{Milliseconds: 10000}
		hear(address("10.0.0.2"), message.Message{Type: message.Path, TTL: 20, Objects: []message.Object{
			k.Session, message.Hop{Addr: address("10.0.0.2"), Handle: 1}, period,
			message.ExplicitRoute{Steps: steps}, message.LabelRequest{EtherType: 0x800}, a, k.template(),
			spec, message.RecordRoute{Records: []message.Record{{Addr: address("10.0.0.2")}}},
		}})
		hear(address("10.0.0.3"), message.Message{Type: message.Resv, TTL: 255, Objects: []message.Object{
			k.Session, message.Hop{Addr: address("10.0.0.3"), Handle: 1}, period, message.SharedExplicit,
			message.Flowspec{Service: message.ControlledLoad, Bucket: spec.Bucket}, k.filter(),
			message.Label(55),
		}})
		if s := r.lsps[k]; s == nil || s.resv == nil {
			t.Fatalf("it is not up: %+v", r.Counters)
		}
		out = 2
		r.SetLink(now, 1, false)
		for range 12 {
			now += testRefresh
			r.Tick(now)
		}
		for _, e := range r.Take().Events {
			t.Errorf("loose %v: an owner hears %v", loose, e.Kind)
		}
		if r.lsps[k] != nil || len(r.interfaces[1].held)+len(r.interfaces[2].held) != 0 {
			t.Errorf("loose %v: it is there, and holds %v and %v", loose, r.interfaces[1].held,
				r.interfaces[2].held)
		}
	}
}
