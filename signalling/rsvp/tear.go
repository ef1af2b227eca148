package rsvp

import (
	"net/netip"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// upstream finds the LSP of which a message came from the router before this one.
func (r *Router) upstream(k Key, in *link, hop netip.Addr) *lsp {
	s := r.lsps[k]
	if merged, b := r.backupOf(k); b != nil {
		return merged
	}
	switch {
	case s == nil:
		r.Counters.Stateless++
	case s.in != in || s.path.hop.Addr != hop:
		r.Counters.Foreign++
	default:
		return s
	}
	return nil
}

func (r *Router) receivePathTear(in *link, m message.Message) {
	k, ok := readKey(m)
	hop, hasHop := message.Of[message.Hop](m)
	if !ok || !hasHop {
		r.Counters.Malformed++
		return
	}
	if e := r.adopted[k]; e != nil && e.comesBy(in.Index) { // no Path has come since a restart
		r.release(e)
		return
	}
	if s, b := r.backupOf(k); b != nil {
		r.dropBackup(s, b)
		return
	}
	if s := r.upstream(k, in, hop.Addr); s != nil {
		r.lapse(s, false)
	}
}

func (r *Router) receiveResvTear(in *link, m message.Message) {
	v, ok := readResv(m)
	if !ok {
		r.Counters.Malformed++
		return
	}
	for _, f := range v.flows {
		if s := r.downstream(f.key, in, v.hop.Addr); s != nil && s.resv != nil {
			r.withdraw(s)
		}
	}
}

// receivePathErr passes an error on to the ingress, and there tells of it.
func (r *Router) receivePathErr(in *link, m message.Message) {
	k, ok := readKey(m)
	e, hasError := message.Of[message.ErrorSpec](m)
	if !ok || !hasError {
		r.Counters.Malformed++
		return
	}
	s := r.lsps[k]
	if repaired := r.repairedBy(k); repaired != nil {
		s = repaired
	} else if s != nil && (s.out != in || s.repair != nil) {
		r.Counters.Foreign++
		return
	}
	if s == nil {
		r.Counters.Stateless++
		return
	}
	switch {
	case s.in != nil:
		passed := e
		passed.Flags &^= message.PathStateRemoved // RFC 3473, section 4.4: this router keeps its own
		r.pathErrs(s, passed, inWords(m)...)
	case e.Code == message.Notify && e.Value == message.LocallyRepaired:
		r.repaired(s, e)
	default:
		r.failed(s, e, inWords(m))
	}
	// Without path state in the next router there is no reservation there either.
	if e.Flags&message.PathStateRemoved != 0 && s.resv != nil {
		r.withdraw(s)
	}
}

// withdraw takes a reservation back that the next router does not have any more.
func (r *Router) withdraw(s *lsp) {
	if s.repair != nil {
		r.lose(s, s.out)
		return
	}
	r.resvTear(s)
	r.unreserve(s)
}

// receiveResvErr passes an error on to the egress, and there tells of it.
func (r *Router) receiveResvErr(in *link, m message.Message) {
	v, ok := readResv(m)
	if !ok || v.failure.Code == 0 {
		r.Counters.Malformed++
		return
	}
	for _, f := range v.flows {
		s := r.upstream(f.key, in, v.hop.Addr)
		switch {
		case s == nil:
		case s.out == nil:
			r.event(Failed, s.key, v.failure, nil)
		default:
			r.resvErr(s, v.style, f.flowspec, v.failure)
		}
	}
}

func readKey(m message.Message) (Key, bool) {
	session, a := message.Of[message.Session](m)
	template, b := message.Of[message.SenderTemplate](m)
	return Key{session, template.Sender, template.LSP}, a && b
}

// inWords are what a PathErr says more of its error. They are passed on as they are (RFC 5284, section 4).
func inWords(m message.Message) (all []message.UserError) {
	for _, o := range m.Objects {
		if e, is := o.(message.UserError); is {
			all = append(all, e)
		}
	}
	return all
}

// failed tells the owner of an LSP that begins here of an error.
func (r *Router) failed(s *lsp, e message.ErrorSpec, said []message.UserError) {
	r.event(Failed, s.key, e, nil)
	for _, u := range said {
		if u.Text != "" {
			r.out.Events[len(r.out.Events)-1].Said = u.Text
			return
		}
	}
}

// newPathErr makes the message for an LSP that comes by a sender.
func newPathErr(k Key, e message.ErrorSpec, said []message.UserError, tspec message.SenderTspec) message.Message {
	objects := []message.Object{k.Session, e}
	for _, u := range said {
		objects = append(objects, u)
	}
	return message.Message{Type: message.PathErr, TTL: ttl, Objects: append(objects, k.template(), tspec)}
}

// pathErr tells the router at an interface; e has no Node if it is of this router.
func (r *Router) pathErr(in *link, hop netip.Addr, p path, e message.ErrorSpec, said ...message.UserError) {
	if !e.Node.IsValid() {
		e.Node = in.Prefix.Addr()
	}
	r.send(in, hop, in.Prefix.Addr(), hop, newPathErr(p.key, e, said, p.tspec))
}

func (r *Router) resvErr(s *lsp, style message.Style, spec message.Flowspec, e message.ErrorSpec) {
	if !e.Node.IsValid() {
		e.Node = s.out.Prefix.Addr()
	}
	if s.repair != nil {
		r.through(s, message.Message{Type: message.ResvErr, TTL: ttl, Objects: []message.Object{s.key.Session,
			r.backupHop(s), e, style, spec, s.repair.key.filter()}})
		return
	}
	hop := message.Hop{Addr: s.out.Prefix.Addr(), Handle: uint32(s.out.Index)}
	r.send(s.out, s.next, s.out.Prefix.Addr(), s.next, message.Message{Type: message.ResvErr, TTL: ttl,
		Objects: []message.Object{s.key.Session, hop, e, style, spec, s.key.filter()}})
}

func (r *Router) pathTear(s *lsp) {
	if s.repair != nil {
		r.through(s, message.Message{Type: message.PathTear, TTL: ttl, Objects: []message.Object{s.key.Session,
			r.backupHop(s), s.repair.key.template(), s.path.tspec}})
	}
	hop := message.Hop{Addr: s.out.Prefix.Addr(), Handle: uint32(s.out.Index)}
	r.send(s.out, s.next, s.key.Sender, s.key.Session.End, message.Message{Type: message.PathTear, TTL: ttl,
		Objects: []message.Object{s.key.Session, hop, s.key.template(), s.path.tspec}})
}

func (r *Router) resvTear(s *lsp) {
	if s.in == nil {
		return
	}
	for _, b := range s.backups {
		r.sendBackupResvTear(s, b)
	}
	if s.lapsed {
		return
	}
	r.send(s.in, s.path.hop.Addr, s.in.Prefix.Addr(), s.path.hop.Addr, message.Message{Type: message.ResvTear,
		TTL:     ttl,
		Objects: []message.Object{s.key.Session, s.hopUp(), s.resv.style, s.resv.flowspec, s.key.filter()}})
}

// remove forgets an LSP, and tells the routers on the sides that are named.
func (r *Router) remove(s *lsp, up, down bool) {
	if up && s.resv != nil {
		r.resvTear(s)
	}
	if down && s.out != nil {
		r.pathTear(s)
	}
	r.unreserve(s)
	r.store(s, 0)
	r.stop(&s.timer)
	r.meet(s, -1)
	delete(r.sentIDs, s.sent.id)
	r.forget(s.heard)
	delete(r.lsps, s.key)
	r.noteBypass(s, false)
	s.known = false
	delete(r.sessions[s.key.Session], s.key)
	if len(r.sessions[s.key.Session]) == 0 {
		delete(r.sessions, s.key.Session)
	}
}
