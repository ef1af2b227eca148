package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// What each router does to packets, by what the egress asks for, for one hop and for three.
func TestTheEgressSaysWhatTheRouterBeforeItDoes(t *testing.T) {
	for _, c := range []struct {
		egress EgressLabel
		last   int // label; -1: one of its own
		hops   []Operation
		hop    []Operation
	}{
		{ImplicitNull, 3, []Operation{Push, Swap, Pop, Nothing}, []Operation{Plain, Nothing}},
		{ExplicitNull, 0, []Operation{Push, Swap, Swap, Deliver}, []Operation{Push, Deliver}},
		{OwnLabel, -1, []Operation{Push, Swap, Swap, Deliver}, []Operation{Push, Deliver}},
	} {
		for _, want := range [][]Operation{c.hops, c.hop} {
			w := chain(t, len(want), 1000)
			egress := len(want) - 1
			w.routers[egress].config.Egress = c.egress
			w.start(egress)
			way := make([]int, len(want))
			for i := range way {
				way[i] = i
			}
			k := w.mustAdd(0, w.request(1, 1, 400, way...))
			w.run(testTick)
			for i, n := range w.routers {
				if have := n.installed[k].Operation(); have != want[i] {
					t.Errorf("last label %d: router %d of %d does %q, want %q", c.egress, i,
						len(want), have, want[i])
				}
			}
			last := w.routers[egress].installed[k].In
			if c.last >= 0 && last != message.Label(c.last) || c.last < 0 && last < firstLabel {
				t.Errorf("last label %d: it is %d", c.egress, last)
			}
			w.check()
			w.removeLSP(0, k)
			w.run(testTick)
			w.check()
		}
	}
}

// A null label says nothing of what is below it but that it is IP, and explicit null even which one.
func TestNullLabelsAreGivenForIPAlone(t *testing.T) {
	w := chain(t, 2, 1000)
	for _, c := range []struct {
		egress EgressLabel
		kind   uint16
		want   message.Label
	}{
		{ImplicitNull, etherTypeIPv6, message.ImplicitNull},
		{ExplicitNull, etherTypeIPv6, message.IPv6ExplicitNull},
		{ImplicitNull, 0x6558, firstLabel},
		{ExplicitNull, 0x6558, firstLabel + 1},
	} {
		r := w.routers[1]
		r.Router.config.Egress = c.egress
		s := &lsp{path: path{request: message.LabelRequest{EtherType: c.kind}}}
		if l, ok := r.lastLabel(s); !ok || l != c.want {
			t.Errorf("last label %d for EtherType %#x: %d, want %d", c.egress, c.kind, l, c.want)
		}
	}
}

// A label that no packet can be sent by is refused (RFC 3209, section 4.1.1.2), and the next router is told.
func TestLabelsThatCannotBeSentAreRefused(t *testing.T) {
	for _, label := range []message.Label{1, message.IPv6ExplicitNull, 4, 15} {
		w := chain(t, 3, 1000)
		k := w.mustAdd(0, w.request(1, 1, 400, 0, 1, 2))
		w.run(testTick)
		w.check()
		r := w.routers[1]
		before := r.installed[k]
		m := message.Message{Type: message.Resv, TTL: 9, Objects: []message.Object{k.Session,
			message.Hop{Addr: w.address(1, 2), Handle: 2}, message.FixedFilter,
			message.Flowspec{Service: message.ControlledLoad}, k.filter(), label}}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r.Receive(w.now, arrived(2, w.address(1, 2), b))
		out := r.Take()
		var e message.ErrorSpec
		for _, s := range out.Send {
			if answer, err := message.Decode(s.Message); err == nil && answer.Type == message.ResvErr {
				e, _ = message.Of[message.ErrorSpec](answer)
			}
		}
		if e.Code != message.RoutingProblem || e.Value != message.UnacceptableLabel || len(out.Labels) > 0 {
			t.Errorf("label %d: answered %+v; labels %+v", label, e, out.Labels)
		}
		if after := r.Entries(); len(after) != 1 || after[0] != before {
			t.Errorf("label %d: the entry is %+v", label, after)
		}
	}
}
