package rsvp

import (
	"net/netip"
	"reflect"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// A receiver can ask to be told when its reservation is in place (RFC 2205, section 2.6). Routers of this make do not;
// they pass the request on with a reservation that goes on, and answer where it does not: at the ingress, and where the
// same was in place before.

// confirm answers a request that came with a Resv, if what was asked for is in place and is not told upstream.
func (r *Router) confirm(s *lsp, v reservations, f flow) {
	if !v.confirm.IsValid() || s.resv == nil || s.resv.out != f.label ||
		!reflect.DeepEqual(s.resv.flowspec, f.flowspec) {
		return
	}
	r.sendResvConf(s, message.ErrorSpec{Node: r.config.ID}, v.confirm, v.style, f.flowspec)
}

// sendResvConf sends a confirmation towards the egress. It is for the receiver, so routers are alerted to it.
func (r *Router) sendResvConf(s *lsp, by message.ErrorSpec, receiver netip.Addr, style message.Style,
	spec message.Flowspec) {
	if s.out == nil || s.repair != nil {
		return
	}
	before := len(r.out.Send)
	r.send(s.out, s.next, s.out.Prefix.Addr(), receiver, message.Message{Type: message.ResvConf, TTL: ttl,
		Objects: []message.Object{s.key.Session, by, message.ResvConfirm{Receiver: receiver}, style, spec,
			s.key.filter()}})
	for i := range r.out.Send[before:] {
		r.out.Send[before+i].of = []*lsp{s}
	}
}

// receiveResvConf passes a confirmation on. At the egress nobody has asked for it.
func (r *Router) receiveResvConf(in *link, m message.Message) {
	v, _ := readResv(m) // it has no hop
	if !v.confirm.IsValid() || !v.failure.Node.IsValid() || len(v.flows) == 0 {
		r.Counters.Malformed++
		return
	}
	for _, f := range v.flows {
		switch s := r.lsps[f.key]; {
		case s == nil:
			r.Counters.Stateless++
		case s.in != in:
			r.Counters.Foreign++
		default:
			r.sendResvConf(s, v.failure, v.confirm, v.style, f.flowspec)
		}
	}
}
