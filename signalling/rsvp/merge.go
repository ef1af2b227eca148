package rsvp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// backup is the Path of a point of local repair, which sends an LSP here through a bypass (RFC 4090, section 7.1). Here
// it is one more way by which the LSP comes, and lives as long as any of them: the same label, and the same Path to the
// next router, which is that of the LSP itself.
type backup struct {
	key     Key // the LSP with the point of local repair as its sender
	hop     message.Hop
	expires time.Duration
	refresh time.Duration // of the Resv to it
}

// maxBackups is how many routers before this one can repair an LSP at a time: a link and a router fail, one more is
// forgotten.
const maxBackups = 4

// mergesInto finds the LSP that a backup is of: with the same session and number, and another sender.
func (r *Router) mergesInto(k Key) (found *lsp) {
	if r.lsps[k] != nil {
		return nil
	}
	for _, s := range r.sessions[k.Session] {
		if s.key.LSP == k.LSP && s.in != nil && s.path.protected() &&
			(found == nil || s.key.compare(found.key) < 0) {
			found = s
		}
	}
	return found
}

// backupOf finds the backup with a key, and its LSP; nil: there is none.
func (r *Router) backupOf(k Key) (*lsp, *backup) {
	if s := r.mergesInto(k); s != nil {
		for _, b := range s.backups {
			if b.key == k {
				return s, b
			}
		}
	}
	return nil, nil
}

// receiveBackup takes the Path of a point of local repair for an LSP that is here. Of what it says, only who sends it
// counts: the LSP itself has the rest.
func (r *Router) receiveBackup(s *lsp, p path) {
	if r.own(p.hop.Addr) || r.own(p.key.Sender) || p.route == nil || len(p.route.Steps) == 0 ||
		!r.isStep(p.route.Steps[0]) {
		r.Counters.Foreign++
		return
	}
	_, b := r.backupOf(p.key)
	if b == nil {
		if len(s.backups) == maxBackups {
			s.backups = s.backups[1:]
		}
		b = &backup{key: p.key}
		s.backups = append(s.backups, b)
	}
	fresh := b.hop != p.hop
	b.hop, b.expires = p.hop, r.now+lifetime(p.period)
	if fresh && s.resv != nil {
		r.sendBackupResv(s, b)
	}
	r.schedule(s)
}

// dropBackup forgets a backup. It takes the LSP with it if this comes by no other way.
func (r *Router) dropBackup(s *lsp, b *backup) {
	s.backups = slices.DeleteFunc(s.backups, func(o *backup) bool { return o == b })
	if len(s.backups) == 0 && (s.lapsed || s.in.Down) {
		r.remove(s, false, true)
		return
	}
	r.schedule(s)
}

// lapse is the end of the Path of the LSP itself: it goes on by its backups, if there are any.
func (r *Router) lapse(s *lsp, expired bool) {
	if len(s.backups) == 0 {
		r.remove(s, expired, true)
		return
	}
	s.lapsed = true
	r.schedule(s)
}

// outlive has an LSP stay whose link to the router before has failed, for as long as if it had just been refreshed: the
// point of local repair may be about to send it here by another way (RFC 4090, section 7.2).
func (r *Router) outlive(s *lsp) {
	spare(&s.expires, &s.spared, r.now+lifetime(s.path.period))
	r.schedule(s)
}

// tickBackups refreshes the Resvs to points of local repair, and forgets those that are silent; false: the LSP is gone.
func (r *Router) tickBackups(s *lsp) bool {
	for _, b := range slices.Clone(s.backups) {
		switch {
		case b.expires <= r.now:
			r.dropBackup(s, b)
		case s.resv != nil && b.refresh <= r.now:
			r.sendBackupResv(s, b)
		}
	}
	return s.known
}

// backupDue is when tickBackups has something to do.
func (s *lsp) backupDue() time.Duration {
	at := never
	for _, b := range s.backups {
		at = min(at, b.expires)
		if s.resv != nil {
			at = min(at, b.refresh)
		}
	}
	return at
}

func (r *Router) sendBackupResv(s *lsp, b *backup) {
	b.refresh = r.now + r.jittered()
	m := message.Message{Type: message.Resv, TTL: ttl, Objects: []message.Object{s.key.Session, r.backHop(b),
		r.timeValues(), s.resv.style, s.resv.flowspec, b.key.filter(), s.resv.in}}
	if s.path.record != nil {
		m.Objects = append(m.Objects, message.RecordRoute{Records: r.recorded(s)})
	}
	r.back(b.hop.Addr, m)
}

func (r *Router) sendBackupResvTear(s *lsp, b *backup) {
	r.back(b.hop.Addr, message.Message{Type: message.ResvTear, TTL: ttl, Objects: []message.Object{s.key.Session,
		r.backHop(b), s.resv.style, s.resv.flowspec, b.key.filter()}})
}

func (r *Router) backHop(b *backup) message.Hop {
	return message.Hop{Addr: r.config.ID, Handle: b.hop.Handle}
}

// back sends a message to a point of local repair, as packets to it are routed.
func (r *Router) back(to netip.Addr, m message.Message) {
	r.far(m, Send{Source: r.config.ID, Dest: to})
}

// pathErrs tells an error by each way by which an LSP comes; e has no Node if it is of this router.
func (r *Router) pathErrs(s *lsp, e message.ErrorSpec, said ...message.UserError) {
	if !e.Node.IsValid() {
		e.Node = s.in.Prefix.Addr()
	}
	if !s.lapsed {
		r.pathErr(s.in, s.path.hop.Addr, s.path, e, said...)
	}
	for _, b := range s.backups {
		r.back(b.hop.Addr, newPathErr(b.key, e, said, s.path.tspec))
	}
}

// beyond tells whether a message is between the ends of a bypass, and from which router it comes then.
func (r *Router) beyond(m message.Message) (peer netip.Addr, ok bool) {
	session, _ := message.Of[message.Session](m)
	filter, _ := message.Of[message.FilterSpec](m)
	k := Key{session, filter.Sender, filter.LSP}
	switch m.Type {
	case message.Path, message.PathTear, message.PathErr:
		k, _ = readKey(m)
	case message.Resv, message.ResvTear, message.ResvErr:
	default:
		return peer, false
	}
	if m.Type == message.Path || m.Type == message.PathTear || m.Type == message.ResvErr {
		if r.mergesInto(k) != nil {
			return k.Sender, true
		}
	} else if s := r.repairedBy(k); s != nil {
		return s.repair.bypass.key.Session.End, true
	}
	return peer, false
}
