package rsvp

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Only a router that has removed its own path state says so (RFC 3473, section 4.4): another implementation upstream
// would take it that the Path has to be torn down no more.
func TestAnErrorIsPassedOnWithoutWhatIsTrueOfAnotherRouter(t *testing.T) {
	w := chain(t, 4, 1000)
	victim := w.request(1, 1, 800, 0, 1, 2, 3)
	victim.Attribute.Setup, victim.Attribute.Holding = 7, 7
	w.mustAdd(0, victim)
	w.run(testTick)
	w.check()
	winner := w.request(2, 1, 900, 2, 3)
	winner.Attribute.Setup, winner.Attribute.Holding = 0, 0
	w.mustAdd(2, winner)
	w.run(testTick)
	e, failed := w.routers[0].told(Failed, victim.Key)
	if !failed || e.Error.Value != message.FlowPreempted || e.Error.Flags&message.PathStateRemoved != 0 {
		t.Errorf("the ingress is told %t: %+v", failed, e)
	}
	if free := w.free(0, 1, 7); free != 1000 {
		t.Errorf("%d bytes/s are free at the ingress, want all", free)
	}
}

// The routers before one whose new way on has too little do not go on sending into a label that leads nowhere.
func TestAnLSPWhoseNewWayHasTooLittleIsTornDownUpstream(t *testing.T) {
	w := newWorld(t, 1, 4, 1000, [2]int{0, 1}, [2]int{1, 2}, [2]int{1, 3}, [2]int{3, 2})
	index, next := 2, w.address(1, 2)
	w.routers[0].Router.config.Route = func(netip.Addr) (int, netip.Addr, bool) { return 1, w.address(0, 1), true }
	w.routers[1].Router.config.Route = func(netip.Addr) (int, netip.Addr, bool) { return index, next, true }
	w.routers[1].interfaces[3].Bandwidth = 100
	w.routers[1].mark(w.routers[1].interfaces[3])
	q := w.request(1, 1, 400, 0, 1, 2)
	q.Route = nil
	k := w.mustAdd(0, q)
	w.run(testTick)
	w.check()
	index, next = 3, w.address(1, 3)
	w.run(2 * testRefresh) // the next Path has come, and nothing has expired
	if _, there := w.routers[0].installed[k]; there {
		t.Error("the ingress still sends by the LSP")
	}
	if e, failed := w.routers[0].told(Failed, k); !failed || e.Error.Code != message.AdmissionFailure {
		t.Errorf("the ingress is told %t: %+v", failed, e)
	}
}

// sentTo gives the first Path that a router was sent.
func (w *world) sentTo(router int, q Request) (m message.Message) {
	w.t.Helper()
	w.sent = func(to end, b []byte) {
		if decoded, err := message.Decode(b); err == nil && m.Type == 0 && to.router == router {
			m = decoded
		}
	}
	w.mustAdd(0, q)
	w.sent = nil
	if m.Type != message.Path {
		w.t.Fatalf("router %d was sent %+v", router, m)
	}
	return m
}

func TestAPathThatRequiresWhatIsNotKnownIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		required message.TLV
		want     message.ErrorSpec
	}{
		"another TLV": {message.TLV{Type: 9, Value: []byte{1, 2, 3, 4}},
			message.ErrorSpec{Code: message.UnknownAttribute, Value: 9}},
		"a flag": {message.TLV{Type: message.AttributeFlags, Value: []byte{0, 0x20, 0, 1}},
			message.ErrorSpec{Code: message.UnknownBit, Value: 10}},
		"no flag": {required: message.TLV{Type: message.AttributeFlags, Value: make([]byte, 4)}},
	} {
		w := chain(t, 3, 1000)
		m := w.sentTo(1, w.request(1, 1, 400, 0, 1, 2))
		m.Objects = append(m.Objects, message.RequiredAttributes{TLVs: []message.TLV{c.required}})
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r := w.routers[1]
		r.Receive(w.now, arrived(1, w.address(1, 0), b))
		var have message.ErrorSpec
		for _, s := range r.Take().Send {
			answer, err := message.Decode(s.Message)
			if err != nil {
				t.Fatal(err)
			}
			have, _ = message.Of[message.ErrorSpec](answer)
		}
		if have.Code != c.want.Code || have.Value != c.want.Value || (len(r.lsps) == 0) != (c.want.Code != 0) {
			t.Errorf("%s: error %d, value %d, and %d LSPs; want %d, %d", name, have.Code, have.Value,
				len(r.lsps), c.want.Code, c.want.Value)
		}
	}
}

func TestPathsOfTooManyLSPsAreRefused(t *testing.T) {
	w := chain(t, 3, 1000)
	w.routers[1].config.MaxLSPs = 2
	w.start(1)
	var keys []Key
	for tunnel := range uint16(3) {
		keys = append(keys, w.mustAdd(0, w.request(tunnel, 1, 1, 0, 1, 2)))
		w.run(testTick)
	}
	e, failed := w.routers[0].told(Failed, keys[2])
	if n := len(w.routers[1].lsps); n != 2 || !failed || e.Error.Code != message.ProtocolError {
		t.Errorf("%d LSPs; of the third is told %t: %+v", n, failed, e)
	}
	w.run(10 * testRefresh)
	if _, down := w.routers[0].told(Down, keys[0]); down {
		t.Error("an LSP that is there is not refreshed")
	}
	w.removeLSP(0, keys[0])
	w.run(2 * testRefresh)
	if _, up := w.routers[0].told(Up, keys[2]); !up {
		t.Error("the third LSP is not set up when there is room")
	}
	w.check()
}

// RFC 3209, sections 4.3 and 4.4: of several routes only the first one is meaningful.
func TestTheFirstOfSeveralRoutesCounts(t *testing.T) {
	w := chain(t, 3, 1000)
	m := w.sentTo(1, w.request(1, 1, 400, 0, 1, 2))
	first, _ := message.Of[message.ExplicitRoute](m)
	m.Objects = append(m.Objects, message.ExplicitRoute{}, message.RecordRoute{})
	p, ok := readPath(m)
	if !ok || p.route == nil || len(p.route.Steps) != len(first.Steps) || len(p.record.Records) != 1 {
		t.Errorf("%t: %+v, %+v", ok, p.route, p.record)
	}
	resv := message.Message{Type: message.Resv, Objects: []message.Object{p.key.Session, p.hop, message.FixedFilter,
		p.key.filter(), message.Label(16), message.RecordRoute{Records: make([]message.Record, 1)},
		message.RecordRoute{}}}
	if v, ok := readResv(resv); !ok || len(v.flows[0].record.Records) != 1 {
		t.Errorf("%t: %+v", ok, v.flows)
	}
}

func TestARequestThatIsRefusedSaysWhatIsLeft(t *testing.T) {
	w := chain(t, 3, 1000)
	w.mustAdd(0, w.request(1, 1, 700, 0, 1, 2))
	w.run(testTick)
	more := w.request(2, 1, 400, 0, 1, 2)
	var e *Refused
	if err := w.routers[0].Add(w.now, more); !errors.As(err, &e) || e.Cause.Code != message.AdmissionFailure ||
		e.Interface != 1 || e.Unreserved != 300 || e.Request.Key != more.Key || e.Disallowed {
		t.Errorf("%v: %+v", err, e)
	}
}
