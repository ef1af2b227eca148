package rsvp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// What no message can say would be tried for ever, and nobody would be told.
func TestRequestsThatNoPathCanSayAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Request){
		"a name of 256 bytes": func(q *Request) { q.Attribute.Name = strings.Repeat("x", 256) },
		"is missing":          func(q *Request) { q.Key.Sender = netip.Addr{} },
		"of the other family": func(q *Request) { q.Key.Session.Extended = netip.IPv6Loopback() },
		"a step of type 0":    func(q *Request) { q.Route = append(q.Route, message.Step{}) },
	} {
		w := chain(t, 2, 1000)
		q := w.request(1, 1, 400, 0, 1)
		change(&q)
		if err := w.routers[0].Add(w.now, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		if len(w.routers[0].lsps) > 0 {
			t.Errorf("%q: it is there", want)
		}
	}
}
