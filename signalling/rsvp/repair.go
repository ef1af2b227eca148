package rsvp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// repair is how an LSP goes round a failure (RFC 4090, section 6.4.3): by changed labels at once, and then by a Path of
// its own through the bypass, which is refreshed there and answered from there. It ends with the LSP: the ingress is
// told, and asks for another one (global revertive mode, section 6.5.2).
type repair struct {
	bypass *lsp
	// key is the LSP with this router as its sender: so the router where the bypass ends tells it from the LSP
	// itself.
	key   Key
	steps []message.Step
	told  bool // the routers on both sides
}

// goRound sends an LSP through a bypass; false: there is none. Where node is true, the next router has failed.
func (r *Router) goRound(s *lsp, node bool) bool {
	d, ok := r.detour(s, node)
	if !ok {
		return false
	}
	r.hold(s, nil)
	delete(r.sentIDs, s.sent.id)
	r.forget(s.resv.heard)
	s.sent, s.resv.heard, s.kept, s.unsure = sent{}, heard{}, nil, false
	s.resv.out = d.label
	if s.repair == nil { // the failure is a new one
		s.resv.spared = false
	}
	spare(&s.resv.expires, &s.resv.spared, r.now+lifetime(s.resv.period))
	s.repair = &repair{bypass: d.bypass, steps: d.steps, key: s.key}
	s.repair.key.Sender = r.backupSender(s, d.bypass)
	r.install(s)
	s.refresh = r.now + pause
	r.schedule(s)
	return true
}

// pause is how long messages of a repair wait, so that the labels of all LSPs come first, also where several links
// fail.
const pause = time.Millisecond

// backupSender is an address of this router which is not that of the LSP's ingress, as this may be this router (RFC
// 4090, section 6.1.1).
func (r *Router) backupSender(s, bypass *lsp) netip.Addr {
	if r.config.ID != s.key.Sender {
		return r.config.ID
	}
	return bypass.out.Prefix.Addr()
}

// tell sends the news of a repair to the ingress. The record of the Resv has it as well, for a PathErr can be lost.
func (r *Router) tell(s *lsp) {
	s.repair.told = true
	e := message.ErrorSpec{Node: s.out.Prefix.Addr(), Code: message.Notify, Value: message.LocallyRepaired}
	if s.in == nil {
		r.repaired(s, e)
		return
	}
	r.pathErrs(s, e)
	r.sendResvs([]*lsp{s})
}

// repaired tells the owner of an LSP that begins here, once for each time that it is repaired somewhere.
func (r *Router) repaired(s *lsp, e message.ErrorSpec) {
	if !s.around {
		s.around = true
		r.event(Repaired, s.key, e, nil)
	}
}

// lookAround finds in the record of an LSP that begins here whether it is repaired somewhere.
func (r *Router) lookAround(s *lsp) {
	if s.resv.record == nil || s.repair != nil {
		return
	}
	in := slices.IndexFunc(s.resv.record.Records, func(rec message.Record) bool {
		return rec.Addr.IsValid() && rec.Flags&message.ProtectionInUse != 0
	})
	if in < 0 {
		s.around = false
		return
	}
	r.repaired(s, message.ErrorSpec{Node: s.resv.record.Records[in].Addr, Code: message.Notify,
		Value: message.LocallyRepaired})
}

// sendBackup sends the Path of a repaired LSP through its bypass.
func (r *Router) sendBackup(s *lsp) {
	if !s.repair.told {
		r.tell(s)
	}
	if s.path.ttl <= 1 {
		return
	}
	p := s.repair
	m := message.Message{Type: message.Path, TTL: s.path.ttl - 1, Objects: []message.Object{s.key.Session,
		r.backupHop(s), r.timeValues(), message.ExplicitRoute{Steps: p.steps}, s.path.request}}
	for _, o := range s.path.rest {
		switch a := o.(type) {
		case message.FastReroute: // what protects it is not protected
			continue
		case message.SessionAttribute:
			a.Flags &^= message.LocalProtection | message.WantBandwidthBackup | message.WantNodeBackup
			o = a
		}
		m.Objects = append(m.Objects, o)
	}
	m.Objects = append(m.Objects, p.key.template(), s.path.tspec)
	if a, ok := s.adspec(p.bypass.out); ok {
		m.Objects = append(m.Objects, a)
	}
	if s.path.record != nil {
		m.Objects = append(m.Objects, message.RecordRoute{Records: append([]message.Record{
			{Addr: p.key.Sender, Flags: r.protection(s)}}, s.path.record.Records...)})
	}
	r.through(s, m)
}

// backupHop is this router as the one where the bypass ends sees it: by an address to which packets are routed from
// there.
func (r *Router) backupHop(s *lsp) message.Hop {
	return message.Hop{Addr: r.config.ID, Handle: uint32(s.out.Index)}
}

// through sends a message of a repaired LSP through its bypass, to the router where that ends; without the bypass, as
// packets to that router are routed.
func (r *Router) through(s *lsp, m message.Message) {
	b := s.repair.bypass
	to := Send{Source: r.config.ID, Dest: b.key.Session.End}
	if b.resv != nil && !b.out.Down {
		to.Interface, to.Next, to.Through = b.out.Index, b.next, b.key
	}
	r.far(m, to)
}

// far sends a message to a router that is no neighbour.
func (r *Router) far(m message.Message, to Send) {
	b, err := r.encode(r.config.Keys, m)
	if err != nil {
		r.Counters.Malformed++
		return
	}
	to.Message = b
	r.out.Send = append(r.out.Send, to)
}

// repairedBy finds the LSP that goes round a failure by a key.
func (r *Router) repairedBy(k Key) *lsp {
	if r.lsps[k] != nil {
		return nil
	}
	for _, s := range r.sessions[k.Session] {
		if s.repair != nil && s.repair.key == k {
			return s
		}
	}
	return nil
}
