package rsvp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Request is an LSP that begins at this router.
type Request struct {
	Key       Key
	Route     []message.Step // nil: as packets to the egress are routed
	Bandwidth uint64         // bytes a second
	MaxPacket uint32         // bytes; 0: 1500
	// Attribute has priorities, flags, a name, and affinities if there are any. SharedStyle asks for SE.
	Attribute message.SessionAttribute
	Record    bool // the routers on the way
	// Replaces is an LSP of the same session that is torn down when this one is up: make before break. Both need
	// SharedStyle, so that they share what they reserve. 0: none.
	Replaces uint16
	// Bypass is the interface that the LSP is a bypass for (RFC 4090, facility backup): where it ends is a router
	// behind that interface, the next one or one that follows. 0: it is none. LSPs by that interface which ask for
	// LocalProtection, and go through that router, go on by the bypass when the interface or the router behind it
	// fails. Of several, one past the next router is for those that ask for WantNodeBackup.
	Bypass int
}

const (
	etherTypeIPv4  = 0x0800
	defaultPacket  = 1500
	minimumPoliced = 20
)

// Add sets up an LSP. The router goes on trying until it is removed.
//
// To give an LSP another route or bandwidth, add one with another number that Replaces it. A router that refuses the
// new one leaves the old one as it is. To give up, remove the new one.
func (r *Router) Add(now time.Duration, q Request) error {
	r.advance(now)
	k, a := q.Key, q.Attribute
	switch {
	case r.lsps[k] != nil:
		return fmt.Errorf("add %s: it is there already", k)
	case a.Setup < a.Holding || a.Setup >= priorities:
		return fmt.Errorf("add %s: set-up priority %d is better than holding priority %d, or above 7", k,
			a.Setup, a.Holding)
	case q.Replaces != 0 && (a.Flags&message.SharedStyle == 0 || q.Replaces == k.LSP ||
		r.lsps[q.replaced()] == nil):
		return fmt.Errorf("add %s: LSP %d to replace is not there, or the two share no reservation", k,
			q.Replaces)
	}
	if err := r.checkBypass(q); err != nil {
		return err
	}
	if a.Flags&message.LocalProtection != 0 { // RFC 4090, section 6: so routers know the labels of others
		a.Flags |= message.LabelRecording
		q.Record = true
	}
	if a.Affinities != nil {
		own := *a.Affinities
		a.Affinities = &own
	}
	if q.MaxPacket == 0 {
		q.MaxPacket = defaultPacket
	}
	bucket := message.Bucket{Rate: float32(q.Bandwidth), Size: float32(q.MaxPacket), Peak: float32(q.Bandwidth),
		MinPoliced: min(minimumPoliced, q.MaxPacket), MaxPacket: q.MaxPacket}
	s := &lsp{key: k, request: &q, path: path{key: k, ttl: ttl, period: r.config.Refresh, priority: a,
		request: message.LabelRequest{EtherType: etherTypeIPv4}, tspec: message.SenderTspec{Bucket: bucket},
		rest: []message.Object{a}}}
	if q.Route != nil {
		s.path.route = &message.ExplicitRoute{Steps: q.Route}
	}
	if q.Record {
		s.path.record = &message.RecordRoute{}
	}
	first := message.Message{Type: message.Path, Objects: []message.Object{k.Session, k.template(), a, s.path.tspec,
		message.ExplicitRoute{Steps: q.Route}}}
	if _, err := first.Encode(); err != nil { // it would never be sent
		return fmt.Errorf("add %s: %w", k, err)
	}
	if e := r.inherit(nil, s, r.routeLSP(s)); e.Code != 0 {
		return refused(s, e)
	}
	if s.out == nil {
		return fmt.Errorf("add %s: it would end where it begins", k)
	}
	if s.out.Index == q.Bypass {
		return fmt.Errorf("add %s: it goes by interface %d, for which it is to be a bypass", k, q.Bypass)
	}
	if e := r.early(s); e.Code != 0 {
		return refused(s, e)
	}
	r.add(s)
	r.noteBypass(s, true)
	r.bind(s)
	r.sendPath(s)
	return nil
}

func (r *Router) checkBypass(q Request) error {
	switch {
	case q.Bypass == 0:
	case r.interfaces[q.Bypass] == nil:
		return fmt.Errorf("add %s: a bypass for interface %d, which is not there", q.Key, q.Bypass)
	case q.Attribute.Flags&message.LocalProtection != 0:
		return fmt.Errorf("add %s: a bypass for interface %d is not protected itself", q.Key, q.Bypass)
	}
	return nil
}

func (q Request) replaced() Key { return Key{q.Key.Session, q.Key.Sender, q.Replaces} }

// ErrNoLSP is the error of a request for an LSP that does not begin here.
var ErrNoLSP = errors.New("no such LSP begins here")

// Remove tears an LSP down.
func (r *Router) Remove(now time.Duration, k Key) error {
	r.advance(now)
	s := r.lsps[k]
	if e := r.adopted[k]; e != nil && !e.HasIn {
		r.release(e)
		return nil
	}
	if s == nil || s.request == nil {
		return fmt.Errorf("remove %s: %w", k, ErrNoLSP)
	}
	r.remove(s, false, true)
	return nil
}

// up is told at the ingress when the reservation has come.
func (r *Router) up(s *lsp) {
	var route []message.Record
	if s.resv.record != nil {
		route = s.resv.record.Records
	}
	r.event(Up, s.key, message.ErrorSpec{}, route)
	old := r.lsps[s.request.replaced()]
	if s.request.Replaces == 0 || old == nil || old.request == nil {
		return
	}
	r.remove(old, false, true)
	s.request.Replaces = 0
	r.event(Replaced, old.key, message.ErrorSpec{}, nil)
}

// Entries is what is installed, in a fixed order.
func (r *Router) Entries() []Entry { return r.allEntries() }

// Unreserved is what LSPs of each set-up priority can still have at an interface, in bytes a second: nothing where it
// is down.
func (r *Router) Unreserved(index int) (free [priorities]uint64) {
	if l := r.interfaces[index]; l != nil && !l.Down {
		for p := range free {
			free[p] = l.unreserved(uint8(p))
		}
	}
	return free
}

// sorted is the LSPs of a kind in a fixed order, so that a run can be repeated.
func (r *Router) sorted(kind func(*lsp) bool) (all []*lsp) {
	for _, s := range r.lsps {
		if kind(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *lsp) int { return a.key.compare(b.key) })
	return all
}

func (k Key) compare(o Key) int {
	if c := k.Session.End.Compare(o.Session.End); c != 0 {
		return c
	}
	if c := int(k.Session.Tunnel) - int(o.Session.Tunnel); c != 0 {
		return c
	}
	if c := k.Session.Extended.Compare(o.Session.Extended); c != 0 {
		return c
	}
	return cmp.Or(k.Sender.Compare(o.Sender), int(k.LSP)-int(o.LSP))
}
