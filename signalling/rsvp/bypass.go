package rsvp

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Facility backup (RFC 4090): a bypass is an LSP that begins here and goes round one of this router's links, or round
// the router behind it as well. When the link fails, LSPs that ask for protection and go through the router where the
// bypass ends are sent through it: in the order of the files bypass.go (which one), repair.go (the router where it
// begins, the point of local repair), merge.go (the router where it ends, the merge point).

// detour is how an LSP goes by a bypass.
type detour struct {
	bypass *lsp
	label  message.Label // of the LSP, as the router where the bypass ends has given it
	// steps are the LSP's route from there on.
	steps []message.Step
	// routers is how many are gone round.
	routers int
}

// protected tells whether an LSP asks for local protection.
func (p path) protected() bool { return p.priority.Flags&message.LocalProtection != 0 }

// detour finds the bypass by which an LSP goes on if its link fails. One round the next router comes first if the LSP
// asks for that, else one to it; where node is true, the next router has failed.
func (r *Router) detour(s *lsp, node bool) (best detour, ok bool) {
	if !s.path.protected() || s.out == nil || s.resv == nil || s.resv.record == nil {
		return best, false
	}
	wish := 0
	if s.path.priority.Flags&message.WantNodeBackup != 0 {
		wish = 1
	}
	worse := func(routers int) int { // a smaller number is better
		if routers < wish {
			return maxRouters
		}
		return routers
	}
	for _, b := range r.bypasses[s.out.Index] {
		if b.resv == nil || b.out == nil || b.out == s.out || b.out.Down {
			continue
		}
		d, fits := s.by(b)
		if fits && (!node || d.routers > 0) && (!ok || worse(d.routers) < worse(best.routers)) {
			best, ok = d, true
		}
	}
	return best, ok
}

const maxRouters = 256 // a record has fewer

// by looks for the router where a bypass ends in an LSP's record: it has the label by which packets are to come there
// (RFC 4090, section 6.4.2), if the router takes it at each interface. Routers behind this one have written the record:
// a router before this one in it would be a loop. (Those before this one are known by interfaces, and by their IDs only
// where routers of other makes record these in Paths.)
func (s *lsp) by(b *lsp) (detour, bool) {
	d, end, passed := detour{bypass: b}, b.key.Session.End, false
	if s.path.record != nil && slices.ContainsFunc(s.path.record.Records,
		func(rec message.Record) bool { return rec.Addr == end }) {
		return d, false
	}
	var before []netip.Addr
	for i, rec := range s.resv.record.Records {
		switch {
		case rec.IsLabel && passed:
			d.label = message.Label(rec.Label)
			d.steps = append([]message.Step{hostStep(end)}, s.after(before)...)
			return d, rec.Flags&message.GlobalLabel != 0 && acceptable(d.label, s.path.request)
		case rec.IsLabel && i > 0 && !s.resv.record.Records[i-1].IsLabel:
			d.routers++
		case passed && rec.Flags&message.NodeID != 0: // the next router: the one in question has told no label
			return d, false
		case rec.Addr.IsValid():
			passed = passed || rec.Addr == end
			before = append(before, rec.Addr)
		}
	}
	return d, false
}

// after is what is left of an LSP's route behind routers that it does not go to (RFC 4090, section 6.4.4).
func (s *lsp) after(routers []netip.Addr) []message.Step {
	for i, step := range slices.Backward(s.steps) {
		if slices.ContainsFunc(routers, func(a netip.Addr) bool {
			return step.Prefix.IsValid() && step.Prefix.Contains(a)
		}) {
			return s.steps[i+1:]
		}
	}
	return s.steps
}

func hostStep(a netip.Addr) message.Step {
	return message.Step{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

// isBypass tells whether an LSP is one: for interface request.Bypass.
func (s *lsp) isBypass() bool { return s.request != nil && s.request.Bypass != 0 }

// noteBypass has LSPs of an interface find a bypass from now on, or not any more.
func (r *Router) noteBypass(b *lsp, there bool) {
	if !b.isBypass() {
		return
	}
	of := b.request.Bypass
	if there {
		r.bypasses[of] = append(r.bypasses[of], b)
		return
	}
	r.bypasses[of] = slices.DeleteFunc(r.bypasses[of], func(o *lsp) bool { return o == b })
	if len(r.bypasses[of]) == 0 {
		delete(r.bypasses, of)
	}
}

// bypassChanged is called when a bypass is up, has another label, or is down: what goes through it goes by another one,
// or ends, and routers before this one are told which LSPs are protected now.
func (r *Router) bypassChanged(b *lsp) {
	if !b.isBypass() {
		return
	}
	for _, s := range r.sorted(func(s *lsp) bool { return s.repair != nil && s.repair.bypass == b }) {
		switch {
		case !s.known:
		case b.resv != nil:
			r.install(s)
		case !r.goRound(s, false):
			r.lose(s, s.out)
		}
	}
	r.sendResvs(r.sorted(func(s *lsp) bool {
		return s.in != nil && s.out != nil && s.out.Index == b.request.Bypass && s.resv != nil &&
			s.path.protected()
	}))
}

// protection is what a record says of an LSP's protection at this router (RFC 4090, section 4.4).
func (r *Router) protection(s *lsp) (flags uint8) {
	if s.repair != nil {
		return message.ProtectionAvailable | message.ProtectionInUse
	}
	d, ok := r.detour(s, false)
	switch {
	case !ok:
		return 0
	case d.routers > 0:
		return message.ProtectionAvailable | message.NodeProtected
	}
	return message.ProtectionAvailable
}

// top is the label by which packets enter a bypass, above their own; 0: none, or one that says nothing there.
func (s *lsp) top() message.Label {
	if s.resv == nil || s.resv.out < firstLabel {
		return 0
	}
	return s.resv.out
}
