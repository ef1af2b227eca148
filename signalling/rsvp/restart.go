package rsvp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Adopt has a router that has restarted take over the entries by which packets are still forwarded (RFC 3473, section
// 9.5.2). It is the first input. They stay installed, with their labels and bandwidth, for Config.Recovery: so long,
// a Path or a request of their LSP binds them to it, and its reservation goes by the same labels. Those that no LSP
// has then are removed. Entries has them too.
//
// Each entry is as LabelChange gave it. One without a Key is known by its interface and its own label In alone, and is
// bound by a Path with a Recovery_Label or Suggested_Label. Those by interfaces that are down or gone are removed at
// once.
func (r *Router) Adopt(now time.Duration, entries []Entry) error {
	r.advance(now)
	if len(r.lsps) > 0 || r.recovering() {
		return errors.New("adopt entries: the router has state already")
	}
	keys, labels := make(map[Key]bool), make(map[message.Label]bool)
	for _, e := range entries {
		k, own := e.adoptedKey(), e.HasIn && e.In >= firstLabel
		switch {
		case !e.HasIn && !e.HasOut || e.In > message.MaxLabel:
			return fmt.Errorf("adopt entries: %+v is none", e)
		case !e.named() && !own:
			return fmt.Errorf("adopt entries: %+v has neither an LSP nor a label of its own", e)
		case keys[k] || own && labels[e.In]:
			return fmt.Errorf("adopt entries: %+v is there twice", e)
		}
		keys[k], labels[e.In] = true, true
	}
	for _, e := range entries {
		if e.HasIn && e.From != 0 && !r.usable(e.From) || e.HasOut && !r.usable(e.Interface) {
			r.out.Labels = append(r.out.Labels, LabelChange{Remove: true, Entry: e})
			continue
		}
		if e.HasIn {
			r.labels.keep(e.In)
		}
		if e.HasOut {
			l := r.interfaces[e.Interface]
			l.set(e.adoptedKey(), e.hold())
			r.mark(l)
		}
		r.adopted[e.adoptedKey()] = &e
	}
	r.set(&r.recovery, r.now+r.config.Recovery)
	return nil
}

func (r *Router) usable(index int) bool {
	l := r.interfaces[index]
	return l != nil && !l.Down
}

// comesBy tells whether packets can meet an entry by an interface.
func (e Entry) comesBy(index int) bool { return e.HasIn && (e.From == index || e.From == 0) }

func (e Entry) named() bool { return e.Key.Session.End.IsValid() }

// adoptedKey is the LSP of an entry, or a name for it that no LSP has.
func (e Entry) adoptedKey() Key {
	if e.named() {
		return e.Key
	}
	return nameless(e.In)
}

// nameless is of a session for each label: it is not known who shares what.
func nameless(l message.Label) Key {
	return Key{Session: message.Session{Tunnel: uint16(l), Extended: netip.AddrFrom4([4]byte{byte(l >> 16)})}}
}

// hold is by the best priority: what recovers is not pre-empted.
func (e Entry) hold() *hold { return &hold{bandwidth: e.Bandwidth, shared: e.Shared} }

// recovering tells whether LSPs can still claim adopted entries.
func (r *Router) recovering() bool { return r.recovery.place > 0 }

// recoveryLeft is how long it is so; 0: it is not.
func (r *Router) recoveryLeft() time.Duration {
	if !r.recovering() {
		return 0
	}
	return max(r.recovery.at-r.now, 0)
}

// claimed is the entry by which packets of an LSP are forwarded since before a restart; nil: none. Where state of the
// LSP is already here, that is s.
func (r *Router) claimed(s, fresh *lsp) *Entry {
	if s != nil {
		return s.kept
	}
	if e := r.adopted[fresh.key]; e != nil {
		return e
	}
	if !fresh.path.hinted {
		return nil
	}
	if e := r.adopted[nameless(fresh.path.hint)]; e != nil && fresh.in != nil && e.comesBy(fresh.in.Index) {
		return e
	}
	return nil
}

// follow has an LSP go on as its entry says where its route leaves that open: routes may not have come back yet. It
// gives the result of routing, and whether the entry is still the LSP's.
func (r *Router) follow(fresh *lsp, kept *Entry, e message.ErrorSpec) (message.ErrorSpec, bool) {
	routed := e.Code == 0
	open := routed || e == problem(message.NoRoute) || e == problem(message.BadLooseNode)
	switch {
	case kept.HasIn != (fresh.in != nil):
		return e, false
	case !kept.HasOut:
		return e, routed && fresh.out == nil
	case routed && fresh.out == nil: // it ends here now
		return e, false
	case routed && fresh.out.Index == kept.Interface && fresh.next == kept.Next:
		return e, true
	case fresh.strict() || !open || !r.usable(kept.Interface) || !fresh.path.allowed(r.interfaces[kept.Interface]):
		return e, false
	}
	fresh.out, fresh.next = r.interfaces[kept.Interface], kept.Next
	return message.ErrorSpec{}, true
}

// inherit finds what an LSP that is new here, or was bound before, is to be bound to. An adopted entry that leads
// elsewhere than the LSP goes now is removed.
func (r *Router) inherit(s, fresh *lsp, e message.ErrorSpec) message.ErrorSpec {
	kept := r.claimed(s, fresh)
	if kept == nil {
		return e
	}
	e, same := r.follow(fresh, kept, e)
	switch {
	case same:
		fresh.kept = kept
	case s == nil && e.Code == 0:
		r.release(kept)
	}
	return e
}

// bind gives an adopted entry to an LSP that was added.
func (r *Router) bind(s *lsp) {
	if s.kept == nil {
		return
	}
	k := s.kept.adoptedKey()
	delete(r.adopted, k)
	if s.kept.HasOut && k != s.key {
		s.out.set(k, nil)
		s.out.set(s.key, s.kept.hold())
		r.mark(s.out)
	}
}

// release removes an adopted entry that no LSP is bound to, and tells the next router that the LSP is gone.
func (r *Router) release(e *Entry) {
	delete(r.adopted, e.adoptedKey())
	r.out.Labels = append(r.out.Labels, LabelChange{Remove: true, Entry: *e})
	if e.HasIn {
		r.labels.giveBack(e.In)
	}
	if !e.HasOut {
		return
	}
	l := r.interfaces[e.Interface]
	l.set(e.adoptedKey(), nil)
	r.mark(l)
	if e.named() {
		r.pathTear(&lsp{key: e.Key, out: l, next: e.Next})
	}
}

// releaseLink removes the adopted entries by an interface that is down.
func (r *Router) releaseLink(index int) {
	for _, e := range r.unclaimed() {
		if e.HasIn && e.From == index || e.HasOut && e.Interface == index {
			r.release(e)
		}
	}
}

// unclaimed is the adopted entries in a fixed order.
func (r *Router) unclaimed() (all []*Entry) {
	for _, e := range r.adopted {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Entry) int { return a.adoptedKey().compare(b.adoptedKey()) })
	return all
}

// recovered ends the time in which entries can be claimed. Those of LSPs whose reservation has not come back are
// removed as well.
func (r *Router) recovered() {
	for _, e := range r.unclaimed() {
		r.release(e)
	}
	for _, s := range r.sorted(func(s *lsp) bool { return s.kept != nil }) {
		if s.resv == nil {
			r.unreserve(s)
		}
		s.kept = nil
	}
}

// dropKept removes the entry of an LSP whose reservation has not come back.
func (r *Router) dropKept(s *lsp) {
	if s.kept == nil {
		return
	}
	r.out.Labels = append(r.out.Labels, LabelChange{Remove: true, Entry: *s.kept})
	if s.kept.HasIn {
		r.labels.giveBack(s.kept.In)
	}
	if s.out != nil {
		r.hold(s, nil)
	}
	s.kept = nil
	if s.in == nil || s.out == nil {
		r.event(Down, s.key, message.ErrorSpec{}, nil)
	}
}

// unsettled tells whether the reservation of an LSP has to come back in the time of recovery: that of this router, or
// of the next one.
func (r *Router) unsettled(s *lsp) bool {
	return s.kept != nil && s.resv == nil || s.unsure && r.recovers(place{s.out.Index, s.next})
}

// hasten has a Path sent often enough that some can be lost before the time of recovery ends.
func (r *Router) hasten(s *lsp) {
	if !r.unsettled(s) {
		return
	}
	period := r.config.Recovery
	if n := r.neighbours[place{s.out.Index, s.next}]; n != nil && n.recovers(r.now) {
		period = n.recovery
	}
	s.refresh = min(s.refresh, r.now+max(period/recoveryTries, firstRetry))
}

// recoveryTries is how often a Path is sent in the time of recovery, if nothing comes back.
const recoveryTries = 8

// hints is what a Path says of labels from before a restart, of the next router or of this one.
func (r *Router) hints(s *lsp) []message.Object {
	n := r.neighbours[place{s.out.Index, s.next}]
	switch {
	case s.resv != nil && n != nil && n.recovers(r.now):
		return []message.Object{message.RecoveryLabel(s.resv.out)}
	case s.resv != nil || s.kept == nil || !s.kept.HasOut:
		return nil
	case n != nil && n.cap.Recovery > 0: // it has restarted, too
		return []message.Object{message.RecoveryLabel(s.kept.Out)}
	}
	return []message.Object{message.SuggestedLabel(s.kept.Out)}
}

// allEntries is what is installed, in a fixed order.
func (r *Router) allEntries() (all []Entry) {
	for _, e := range r.adopted {
		all = append(all, *e)
	}
	for _, s := range r.lsps {
		switch {
		case s.resv != nil:
			all = append(all, s.entry())
		case s.kept != nil:
			all = append(all, *s.kept)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(a.adoptedKey().compare(b.adoptedKey()), cmp.Compare(a.In, b.In))
	})
	return all
}
