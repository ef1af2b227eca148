package rsvp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Each test of RFC 3209, section 4.7.4, and together.
func TestAffinitiesAllowLinks(t *testing.T) {
	for _, c := range []struct {
		a      message.Affinities
		groups uint32
		want   bool
	}{
		{message.Affinities{}, 0, true}, {message.Affinities{}, 7, true},
		{message.Affinities{ExcludeAny: 6}, 1, true}, {message.Affinities{ExcludeAny: 6}, 5, false},
		{message.Affinities{IncludeAny: 6}, 4, true}, {message.Affinities{IncludeAny: 6}, 1, false},
		{message.Affinities{IncludeAll: 6}, 7, true}, {message.Affinities{IncludeAll: 6}, 4, false},
		{message.Affinities{ExcludeAny: 8, IncludeAny: 1, IncludeAll: 6}, 7, true},
		{message.Affinities{ExcludeAny: 8, IncludeAny: 1, IncludeAll: 6}, 15, false},
	} {
		if got := c.a.Allow(c.groups); got != c.want {
			t.Errorf("%+v, groups %#x: %t", c.a, c.groups, got)
		}
	}
}

// The link that is not allowed is the second one: router 1 refuses the Path, by the error that fits the step.
func TestARouterOnTheWayChecksAffinities(t *testing.T) {
	policy, noRoute := message.ErrorSpec{Code: message.PolicyFailure}, problem(message.NoRoute)
	for name, c := range map[string]struct {
		affinities message.Affinities
		loose      bool
		want       message.ErrorSpec
	}{
		"excluded, strict":     {message.Affinities{ExcludeAny: 2}, false, policy},
		"none of any, strict":  {message.Affinities{IncludeAny: 1}, false, policy},
		"not all, strict":      {message.Affinities{IncludeAll: 3}, false, policy},
		"excluded, loose":      {message.Affinities{ExcludeAny: 2}, true, noRoute},
		"allowed, strict":      {affinities: message.Affinities{ExcludeAny: 4, IncludeAny: 3, IncludeAll: 2}},
		"allowed, loose":       {affinities: message.Affinities{IncludeAll: 2}, loose: true},
		"nothing is asked for": {},
	} {
		w := chain(t, 3, 1000)
		w.routers[0].config.Interfaces[0].Groups = 3 &^ c.affinities.ExcludeAny
		w.routers[1].config.Interfaces[1].Groups = 2
		for i := range 2 {
			w.routers[i].config.Route = func(netip.Addr) (int, netip.Addr, bool) {
				return len(w.routers[i].config.Interfaces), w.address(i, i+1), true
			}
			w.start(i)
		}
		q := w.request(1, 1, 400, 0, 1, 2)
		q.Attribute.Affinities = &c.affinities
		if c.loose {
			q.Route = []message.Step{{Loose: true, Prefix: netip.PrefixFrom(idOf(2), 32)}}
		}
		k := w.mustAdd(0, q)
		w.run(testTick)
		e, failed := w.routers[0].told(Failed, k)
		if _, up := w.routers[0].installed[k]; up != (c.want.Code == 0) || failed == up ||
			e.Error.Code != c.want.Code || e.Error.Value != c.want.Value {
			t.Errorf("%s: up %t, told %t: %+v", name, up, failed, e.Error)
		}
		if failed && e.Error.Node != w.address(0, 1) {
			t.Errorf("%s: told by %s", name, e.Error.Node)
		}
	}
}

func TestTheIngressChecksAffinities(t *testing.T) {
	w := chain(t, 3, 1000)
	w.routers[0].config.Interfaces[0].Groups = 5
	w.start(0)
	q := w.request(1, 1, 400, 0, 1, 2)
	q.Attribute.Affinities = &message.Affinities{ExcludeAny: 4}
	if err := w.add(0, q); err == nil || !strings.Contains(err.Error(), "interface 1, which has administrative "+
		"groups 0x5") {
		t.Error(err)
	}
	q.Attribute.Affinities.ExcludeAny = 2
	delete(w.routers[0].wanted, q.Key)
	w.mustAdd(0, q)
	q.Attribute.Affinities.ExcludeAny = 4 // of the request's owner, and not of the LSP
	w.run(testTick)
	w.check()
	if _, up := w.routers[0].installed[q.Key]; !up {
		t.Error("not up")
	}
}

// Without Affinities, SESSION_ATTRIBUTE is of the C-Type that has none.
func TestAffinitiesAreInThePath(t *testing.T) {
	w := chain(t, 2, 1000)
	q := w.request(1, 1, 400, 0, 1)
	want := message.Affinities{ExcludeAny: 1, IncludeAny: 2, IncludeAll: 4}
	w.routers[0].interfaces[1].Groups = 6
	q.Attribute.Affinities = &want
	a, ok := message.Of[message.SessionAttribute](w.sentTo(1, q))
	if !ok || a.Affinities == nil || *a.Affinities != want || a.Name != q.Attribute.Name || a.Setup != 4 {
		t.Errorf("%+v", a)
	}
	w = chain(t, 2, 1000)
	if a, _ := message.Of[message.SessionAttribute](w.sentTo(1, w.request(1, 1, 400, 0, 1))); a.Affinities != nil {
		t.Errorf("%+v", a)
	}
}
