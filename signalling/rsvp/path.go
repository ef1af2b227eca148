package rsvp

import (
	"cmp"
	"math/bits"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// lsp is what a router knows of an LSP: path state, and the reservation that came back for it.
type lsp struct {
	key  Key
	path path
	// in is nil at the ingress, out at the egress.
	in, out *link
	next    netip.Addr // the neighbour at out
	steps   []message.Step
	expires time.Duration // of path state; not at the ingress
	spared  bool          // it lives for longer than its last Path has said: once for each Path (spare)
	refresh time.Duration // of what is sent downstream; not at the egress
	sent    sent          // downstream
	heard   heard         // from upstream
	resv    *resv
	request *Request // at the ingress
	timer   timer
	known   bool // from add to remove
	victim  int  // place among those of out, from 1; 0: it holds nothing
	// kept is the entry of before a restart, while it recovers: it is installed, and without resv the label In and
	// the bandwidth are the LSP's by it alone.
	kept   *Entry
	stored int  // bytes, see footprint.go
	unsure bool // the next router has restarted, and its Resv has not come again
	// Of local protection: repair is how the LSP goes round a failure behind this router, backups are the ways by
	// which it comes round one before it. lapsed: it comes by these alone. around: at the ingress, it is known to
	// be repaired.
	repair         *repair
	backups        []*backup
	lapsed, around bool
}

// path is what a Path says.
type path struct {
	key      Key
	hop      message.Hop
	period   time.Duration
	route    *message.ExplicitRoute
	request  message.LabelRequest
	tspec    message.SenderTspec
	adspec   *message.Adspec
	record   *message.RecordRoute
	priority message.SessionAttribute
	ttl      uint8
	// hint is the label that the router before has for the LSP, of a Recovery_Label or Suggested_Label.
	hint   message.Label
	hinted bool
	// rest is passed on as it is.
	rest []message.Object
}

// readPath reads a Path; false: something is missing. Of one with an unknown object, only what an error needs is there.
func readPath(m message.Message) (path, bool) {
	p := path{ttl: m.TTL, period: defaultRefresh,
		priority: message.SessionAttribute{Setup: neverPreempts}}
	var session, template, hop, tspec, label bool
	for _, o := range m.Objects {
		switch o := o.(type) {
		case message.Session:
			p.key.Session, session = o, true
		case message.SenderTemplate:
			p.key.Sender, p.key.LSP, template = o.Sender, o.LSP, true
		case message.Hop:
			p.hop, hop = o, true
		case message.TimeValues:
			p.period = min(time.Duration(o.Milliseconds)*time.Millisecond, maxPeriod)
		case message.ExplicitRoute: // the first one counts, and no other is passed on (RFC 3209, 4.3 and 4.4)
			if p.route == nil {
				p.route = &o
			}
		case message.LabelRequest:
			p.request, label = o, true
		case message.SenderTspec:
			p.tspec, tspec = o, true
		case message.Adspec:
			p.adspec = &o
		case message.RecordRoute: // likewise
			if p.record == nil {
				p.record = &o
			}
		case message.SessionAttribute:
			o.Holding = min(o.Holding, o.Setup)
			p.priority = o
			p.rest = append(p.rest, o)
		case message.RecoveryLabel:
			p.hint, p.hinted = message.Label(o), true
		case message.SuggestedLabel:
			p.hint, p.hinted = message.Label(o), true
		case message.ID, message.IDAck, message.Integrity:
		default:
			p.rest = append(p.rest, o)
		}
	}
	return p, session && template && hop && tspec && (label || m.Type != message.Path)
}

func (r *Router) receivePath(in *link, m message.Message) {
	p, ok := readPath(m)
	if !ok {
		r.Counters.Malformed++
		return
	}
	if s := r.mergesInto(p.key); s != nil {
		r.receiveBackup(s, p)
		return
	}
	if !in.Prefix.Contains(p.hop.Addr) || r.own(p.hop.Addr) {
		r.Counters.Foreign++
		return
	}
	h := r.acknowledge(in, p.hop.Addr, m)
	s := r.lsps[p.key]
	if s != nil && h.before(s.heard) {
		return
	}
	if e := r.unacceptable(s, p, m); e.Code != 0 {
		r.pathErr(in, p.hop.Addr, p, e)
		return
	}
	fresh := lsp{key: p.key, path: p, in: in, expires: r.now + lifetime(p.period)}
	if s != nil && s.repair != nil && reflect.DeepEqual(s.path.route, p.route) { // it has left its route already
		fresh.out, fresh.next, fresh.steps = s.out, s.next, s.steps
	} else if e := r.inherit(s, &fresh, r.routeLSP(&fresh)); e.Code != 0 {
		r.pathErr(in, p.hop.Addr, p, e)
		return
	}
	rerouted := s != nil && (s.out != fresh.out || s.next != fresh.next)
	if s == nil || rerouted {
		e := r.early(&fresh)
		if rerouted {
			r.remove(s, e.Code != 0, true)
		}
		if e.Code != 0 {
			r.pathErr(in, p.hop.Addr, p, e)
			return
		}
		r.add(&fresh)
		r.bind(&fresh)
		r.schedule(&fresh)
		r.remember(&fresh.heard, h, false, &fresh)
		r.passOn(&fresh)
		return
	}
	r.update(s, fresh, h)
}

// update is a Path of an LSP that is here, and goes on as before.
func (r *Router) update(s *lsp, fresh lsp, h heard) {
	p, in := fresh.path, fresh.in
	if size := s.resv.size() + p.size(); size > s.stored && !r.room(s, size) {
		r.pathErr(in, p.hop.Addr, p, message.ErrorSpec{Code: message.ProtocolError})
		return
	}
	changed := s.in != in || !samePath(s.path, p)
	moved := s.in != in || s.path.hop != p.hop || s.lapsed || s.path.protected() != p.protected()
	r.meet(s, -1)
	s.path, s.in, s.steps, s.expires, s.lapsed = p, in, fresh.steps, fresh.expires, false
	s.spared = false
	r.meet(s, 1)
	r.weigh(s)
	r.schedule(s)
	r.remember(&s.heard, h, false, s)
	if s.resv != nil && s.out != nil && s.repair == nil { // the holding priority may be another one
		held := s.holdShared(s.resv.bandwidth, s.resv.style == message.SharedExplicit)
		r.hold(s, &held)
	}
	if changed {
		r.passOn(s)
	}
	switch {
	case s.resv == nil:
	case moved && (s.out != nil || !changed): // another router is before this one, and has no label yet
		r.install(s)
		r.sendResvs([]*lsp{s})
	case p.hinted || r.recovers(place{in.Index, p.hop.Addr}): // it is the same one, and has restarted
		r.sendResvs([]*lsp{s})
	}
}

// unacceptable refuses a Path wherever it leads.
func (r *Router) unacceptable(s *lsp, p path, m message.Message) message.ErrorSpec {
	returned := s != nil && s.in == nil // a Path of our own
	if returned || p.record != nil && slices.ContainsFunc(p.record.Records,
		func(rec message.Record) bool { return rec.Addr.IsValid() && r.own(rec.Addr) }) {
		return problem(message.RouteLoop)
	}
	return unknownAttribute(m)
}

// passOn sends the Path to the next router, or at the egress the Resv back.
func (r *Router) passOn(s *lsp) {
	if s.out == nil {
		r.reserveAtEgress(s)
		return
	}
	r.sendPath(s)
}

// unknownAttribute refuses what the sender requires of each router on the way and this one does not know: any of it
// (RFC 5420, section 5).
func unknownAttribute(m message.Message) message.ErrorSpec {
	required, _ := message.Of[message.RequiredAttributes](m)
	for _, t := range required.TLVs {
		if t.Type != message.AttributeFlags {
			return message.ErrorSpec{Code: message.UnknownAttribute, Value: t.Type}
		}
		for i, flags := range t.Value {
			if flags != 0 {
				bit := 8*i + bits.LeadingZeros8(flags)
				return message.ErrorSpec{Code: message.UnknownBit, Value: uint16(bit)}
			}
		}
	}
	return message.ErrorSpec{}
}

// early refuses what would be refused when the reservation comes, and the state of too many LSPs.
func (r *Router) early(s *lsp) message.ErrorSpec {
	old, count := r.lsps[s.key], len(r.lsps)+len(r.adopted)
	if s.kept != nil { // it is one of them
		count--
	}
	if s.in != nil && (old == nil && count >= r.config.MaxLSPs || !r.room(cmp.Or(old, s), s.path.size())) {
		return message.ErrorSpec{Code: message.ProtocolError}
	}
	if s.kept != nil && bytesOf(s.path.tspec.Bucket.Rate) <= s.kept.Bandwidth { // it has that already
		return message.ErrorSpec{}
	}
	if s.out != nil && !s.out.admits(s.key, s.hold(bytesOf(s.path.tspec.Bucket.Rate)), s.path.priority.Setup) {
		return message.ErrorSpec{Code: message.AdmissionFailure, Value: message.BandwidthUnavailable}
	}
	return message.ErrorSpec{}
}

func samePath(a, b path) bool {
	a.ttl, b.ttl = 0, 0
	a.hint, a.hinted, b.hint, b.hinted = 0, false, 0, false
	return reflect.DeepEqual(a, b)
}

// routeLSP finds the next router of an LSP, what is left of its explicit route, and whether its affinities allow the
// link. There is one link for each step, so where it is not allowed there is no other one (RFC 3209, section 4.7.4).
func (r *Router) routeLSP(s *lsp) message.ErrorSpec {
	e := r.nextHop(s)
	switch {
	case e.Code != 0 || s.out == nil || s.path.allowed(s.out):
		return e
	case s.strict():
		return message.ErrorSpec{Code: message.PolicyFailure}
	}
	return problem(message.NoRoute)
}

// allowed tells whether an LSP's affinities allow a link.
func (p path) allowed(l *link) bool {
	a := p.priority.Affinities
	return a == nil || a.Allow(l.Groups)
}

// strict tells whether the route of an LSP names the next router.
func (s *lsp) strict() bool { return len(s.steps) > 0 && !s.steps[0].Loose }

// nextHop follows an explicit route (RFC 3209, section 4.3.4.1).
func (r *Router) nextHop(s *lsp) message.ErrorSpec {
	end := s.key.Session.End
	if s.path.route == nil {
		return r.routeTo(s, end, message.NoRoute)
	}
	steps := s.path.route.Steps
	if len(steps) == 0 {
		return problem(message.BadExplicitRoute)
	}
	if s.in != nil && !r.isStep(steps[0]) && !steps[0].Loose {
		return problem(message.BadInitialStep)
	}
	for len(steps) > 0 && r.isStep(steps[0]) {
		steps = steps[1:]
	}
	if len(steps) == 0 {
		return r.routeTo(s, end, message.NoRoute)
	}
	step := steps[0]
	if !step.Prefix.IsValid() {
		return problem(message.BadExplicitRoute)
	}
	s.steps = steps
	if step.Loose {
		return r.routeTo(s, step.Prefix.Addr(), message.BadLooseNode)
	}
	if s.out = r.connected(step.Prefix.Addr()); s.out == nil || step.Prefix.Bits() != step.Prefix.Addr().BitLen() {
		return problem(message.BadStrictNode)
	}
	s.next = step.Prefix.Addr()
	return message.ErrorSpec{}
}

// isStep tells whether a step of an explicit route is this router.
func (r *Router) isStep(step message.Step) bool {
	if !step.Prefix.IsValid() {
		return false
	}
	if step.Prefix.Contains(r.config.ID) {
		return true
	}
	for _, i := range r.config.Interfaces {
		if step.Prefix.Contains(i.Prefix.Addr()) {
			return true
		}
	}
	return false
}

func (r *Router) routeTo(s *lsp, a netip.Addr, failed uint16) message.ErrorSpec {
	if r.own(a) {
		return message.ErrorSpec{} // the egress
	}
	var ok bool
	if s.out, s.next, ok = r.hopTo(a); !ok {
		return problem(failed)
	}
	return message.ErrorSpec{}
}

func problem(value uint16) message.ErrorSpec {
	return message.ErrorSpec{Code: message.RoutingProblem, Value: value}
}

func (r *Router) sendPath(s *lsp) {
	s.refresh = r.now + r.jittered()
	defer r.schedule(s)
	if s.repair != nil {
		r.sendBackup(s)
		return
	}
	if s.path.ttl <= 1 || r.awaits(place{s.out.Index, s.next}) {
		return
	}
	r.hasten(s)
	hop := message.Hop{Addr: s.out.Prefix.Addr(), Handle: uint32(s.out.Index)}
	m := message.Message{Type: message.Path, TTL: s.path.ttl - 1, Objects: []message.Object{s.key.Session, hop,
		r.timeValues()}}
	if len(s.steps) > 0 {
		m.Objects = append(m.Objects, message.ExplicitRoute{Steps: s.steps})
	}
	m.Objects = append(m.Objects, s.path.request)
	m.Objects = append(m.Objects, s.path.rest...)
	m.Objects = append(m.Objects, s.key.template(), s.path.tspec)
	if a, ok := s.adspec(s.out); ok {
		m.Objects = append(m.Objects, a)
	}
	if s.path.record != nil {
		m.Objects = append(m.Objects, message.RecordRoute{Records: append([]message.Record{
			{Addr: s.out.Prefix.Addr()}}, s.path.record.Records...)})
	}
	m.Objects = append(m.Objects, r.hints(s)...)
	r.note(false, r.number(s.out, &m), s)
	r.send(s.out, s.next, s.key.Sender, s.key.Session.End, m)
}

func (k Key) template() message.SenderTemplate {
	return message.SenderTemplate{Sender: k.Sender, LSP: k.LSP}
}
func (k Key) filter() message.FilterSpec { return message.FilterSpec{Sender: k.Sender, LSP: k.LSP} }

func (r *Router) timeValues() message.TimeValues {
	return message.TimeValues{Milliseconds: uint32(r.config.Refresh / time.Millisecond)}
}

// jittered is a period of 0.5 to 1.5 of the mean (RFC 2205, section 3.7).
func (r *Router) jittered() time.Duration {
	mean := r.config.Refresh
	return mean/2 + time.Duration(r.config.Random()%uint64(mean+1))
}

// lifetime is how long state lives without a refresh (RFC 2205, section 3.7).
func lifetime(period time.Duration) time.Duration { return (2*multiplier + 1) * 3 * period / 4 }

func (r *Router) add(s *lsp) {
	r.lsps[s.key] = s
	s.timer.lsp, s.known = s, true
	r.meet(s, 1)
	r.weigh(s)
	if r.sessions[s.key.Session] == nil {
		r.sessions[s.key.Session] = make(map[Key]*lsp)
	}
	r.sessions[s.key.Session][s.key] = s
}
