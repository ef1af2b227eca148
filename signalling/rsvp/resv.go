package rsvp

import (
	"math"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// resv is a reservation.
type resv struct {
	in        message.Label // given to the router before this one; not at the ingress
	out       message.Label // got from the next one; not at the egress
	flowspec  message.Flowspec
	style     message.Style
	record    *message.RecordRoute // as it came; at the egress nil
	expires   time.Duration        // not at the egress
	spared    bool                 // as lsp.spared
	refresh   time.Duration        // of what is sent upstream; not at the ingress
	bandwidth uint64
	period    time.Duration // of the refreshes that come
	sent      sent          // upstream
	heard     heard         // from downstream
	confirm   netip.Addr    // the receiver that is to be told, as the next message upstream says
}

// flow is what a Resv says of one LSP.
type flow struct {
	key      Key
	label    message.Label
	labelled bool
	flowspec message.Flowspec
	record   *message.RecordRoute
}

// reservations is what a Resv, ResvTear or ResvErr says.
type reservations struct {
	session message.Session
	hop     message.Hop
	period  time.Duration
	style   message.Style
	flows   []flow
	failure message.ErrorSpec
	confirm netip.Addr // the receiver that is to be told
	heard   heard
}

// readResv reads flow descriptors of both styles: a flowspec is that of all filters up to the next flowspec.
func readResv(m message.Message) (v reservations, ok bool) {
	var hop, session bool
	var spec message.Flowspec
	v.period = defaultRefresh
	for _, o := range m.Objects {
		switch o := o.(type) {
		case message.Session:
			v.session, session = o, true
		case message.Hop:
			v.hop, hop = o, true
		case message.TimeValues:
			v.period = min(time.Duration(o.Milliseconds)*time.Millisecond, maxPeriod)
		case message.Style:
			v.style = o
		case message.ErrorSpec:
			v.failure = o
		case message.ResvConfirm:
			v.confirm = o.Receiver
		case message.Flowspec:
			spec = o
		case message.FilterSpec:
			v.flows = append(v.flows, flow{flowspec: spec, key: Key{v.session, o.Sender, o.LSP}})
		case message.Label:
			if last := len(v.flows) - 1; last >= 0 {
				v.flows[last].label, v.flows[last].labelled = o, true
			}
		case message.RecordRoute:
			if last := len(v.flows) - 1; last >= 0 && v.flows[last].record == nil { // the first one counts
				v.flows[last].record = &o
			}
		}
	}
	known := v.style == message.FixedFilter || v.style == message.SharedExplicit
	v.flows = once(v.flows)
	return v, hop && session && known && len(v.flows) > 0
}

// once leaves out what is said of an LSP again.
func once(flows []flow) []flow {
	if len(flows) < 2 {
		return flows
	}
	seen := make(map[Key]bool, len(flows))
	return slices.DeleteFunc(flows, func(f flow) bool {
		again := seen[f.key]
		seen[f.key] = true
		return again
	})
}

func (r *Router) receiveResv(in *link, m message.Message) {
	v, ok := readResv(m)
	if !ok || slices.ContainsFunc(v.flows, func(f flow) bool { return !f.labelled || f.flowspec.Service == 0 }) {
		r.Counters.Malformed++
		return
	}
	if r.repairedBy(v.flows[0].key) == nil {
		v.heard = r.acknowledge(in, v.hop.Addr, m)
	}
	var changed []*lsp
	for _, f := range v.flows {
		s := r.downstream(f.key, in, v.hop.Addr)
		if s == nil || s.resv != nil && v.heard.before(s.resv.heard) {
			continue
		}
		if r.reserve(s, v, f) && s.in != nil {
			s.resv.confirm = v.confirm
			changed = append(changed, s)
			continue
		}
		r.confirm(s, v, f)
	}
	r.sendResvs(changed)
	// A number stands for all LSPs of its message. If one was refused, the number is not known: the message comes
	// again in full.
	if slices.ContainsFunc(v.flows, func(f flow) bool {
		s := r.lsps[f.key]
		return s == nil || s.resv == nil || s.resv.heard != v.heard
	}) {
		r.forget(v.heard)
	}
}

// downstream finds the LSP of which a message came from the next router.
func (r *Router) downstream(k Key, in *link, hop netip.Addr) *lsp {
	if s := r.repairedBy(k); s != nil {
		return s
	}
	s := r.lsps[k]
	if s == nil {
		r.Counters.Stateless++
		return nil
	}
	if s.out != in || s.next != hop || s.repair != nil {
		r.Counters.Foreign++
		return nil
	}
	return s
}

// reserve makes or refreshes a reservation, and tells whether the router before this one has to know.
func (r *Router) reserve(s *lsp, v reservations, f flow) bool {
	if f.record != nil && slices.ContainsFunc(f.record.Records,
		func(rec message.Record) bool { return rec.Addr.IsValid() && r.own(rec.Addr) }) {
		r.resvErr(s, v.style, f.flowspec, problem(message.RouteLoop))
		return false
	}
	if !acceptable(f.label, s.path.request) {
		r.resvErr(s, v.style, f.flowspec, problem(message.UnacceptableLabel))
		return false
	}
	old := s.resv
	s.unsure = false
	fresh := resv{out: f.label, flowspec: f.flowspec, style: v.style, record: f.record,
		expires: r.now + lifetime(v.period), period: v.period, bandwidth: bytesOf(f.flowspec.Bandwidth())}
	// A record that there is no room for is left out, as one that grew too long is (RFC 3209, section 4.4.3).
	if old == nil || !reflect.DeepEqual(old.record, fresh.record) {
		if size := s.size(&fresh); size > s.stored && !r.room(s, size) {
			fresh.record = nil
		}
	}
	if old != nil {
		fresh.in, fresh.refresh, fresh.sent, fresh.heard = old.in, old.refresh, old.sent, old.heard
		if sameResv(*old, fresh) {
			old.expires, old.period, old.spared = fresh.expires, fresh.period, false
			r.schedule(s)
			r.remember(&old.heard, v.heard, true, s)
			return false
		}
	}
	h := s.holdShared(fresh.bandwidth, fresh.style == message.SharedExplicit)
	has := s.kept != nil && fresh.bandwidth <= s.kept.Bandwidth // since before a restart
	refused := !has && s.repair == nil && !s.out.admits(s.key, h, s.path.priority.Setup)
	switch {
	case !refused:
	case old != nil || s.kept == nil:
		r.refuseResv(s, v, f)
		return false
	default: // what was reserved before a restart stays, as it would have without one
		fresh.reduce(s.kept.Bandwidth)
		h.bandwidth = fresh.bandwidth
	}
	if old == nil && s.in != nil {
		var ok bool
		if fresh.in, ok = r.givenLabel(s); !ok {
			r.pathErrs(s, problem(message.LabelAllocation))
			return false
		}
	}
	s.resv = &fresh
	r.schedule(s)
	if !refused {
		r.remember(&fresh.heard, v.heard, true, s)
	}
	r.weigh(s)
	if s.repair == nil {
		r.hold(s, &h)
		r.preempt(s)
	}
	r.install(s)
	r.reserved(s, old)
	if refused {
		r.refuseResv(s, v, f)
	}
	return true
}

// reserved tells who depends on it of a reservation that is new or another one.
func (r *Router) reserved(s *lsp, old *resv) {
	if old == nil || old.out != s.resv.out {
		r.bypassChanged(s)
	}
	if old == nil && s.in == nil {
		r.up(s)
	}
	if s.in == nil {
		r.lookAround(s)
	}
}

// reduce has a reservation be of less than was asked for.
func (v *resv) reduce(bandwidth uint64) {
	v.bandwidth = bandwidth
	v.flowspec.Bucket.Rate = float32(bandwidth)
	if v.flowspec.Service == message.Guaranteed {
		v.flowspec.Reserved = v.flowspec.Bucket.Rate
	}
}

// refuseResv tells both ends that there is not enough. What was reserved before stays.
func (r *Router) refuseResv(s *lsp, v reservations, f flow) {
	e := message.ErrorSpec{Code: message.AdmissionFailure, Value: message.BandwidthUnavailable}
	if s.resv != nil {
		e.Flags |= message.InPlace
		s.resv.expires, s.resv.spared = r.now+lifetime(v.period), false
		r.schedule(s)
		// If the next router has restarted, the old label leads nowhere, or into another LSP.
		if s.resv.out != f.label {
			s.resv.out = f.label
			r.install(s)
			r.bypassChanged(s)
		}
	}
	r.resvErr(s, v.style, f.flowspec, e)
	if s.in == nil {
		e.Node = r.config.ID
		r.event(Failed, s.key, e, nil)
		return
	}
	r.pathErrs(s, e)
}

func sameResv(a, b resv) bool {
	a.expires, b.expires = 0, 0
	a.period, b.period = 0, 0
	a.spared, b.spared = false, false
	a.confirm, b.confirm = netip.Addr{}, netip.Addr{}
	return reflect.DeepEqual(a, b)
}

// hold is what an LSP is going to hold.
func (s *lsp) hold(bandwidth uint64) hold {
	return s.holdShared(bandwidth, s.path.priority.Flags&message.SharedStyle != 0)
}
func (s *lsp) holdShared(bandwidth uint64, shared bool) hold {
	return hold{bandwidth: bandwidth, holding: s.path.priority.Holding, shared: shared}
}

// bytesOf rounds a rate up to whole bytes a second, so that sums are exact.
func bytesOf(rate float32) uint64 {
	if rate >= 1<<62 {
		return 1 << 62
	}
	return uint64(math.Ceil(float64(rate)))
}

// reserveAtEgress answers a Path.
func (r *Router) reserveAtEgress(s *lsp) {
	style := message.FixedFilter
	if s.path.priority.Flags&message.SharedStyle != 0 {
		style = message.SharedExplicit
	}
	spec := message.Flowspec{Service: message.ControlledLoad, Bucket: s.path.tspec.Bucket}
	if s.resv == nil {
		label, ok := r.lastLabel(s)
		if !ok {
			r.pathErrs(s, problem(message.LabelAllocation))
			r.remove(s, false, false)
			return
		}
		s.resv = &resv{in: label}
		r.event(Up, s.key, message.ErrorSpec{}, nil)
	}
	s.resv.flowspec, s.resv.style, s.resv.bandwidth = spec, style, bytesOf(spec.Bandwidth())
	r.install(s)
	r.sendResvs([]*lsp{s})
}

// sendResvs tells the routers before this one. A shared reservation is told with all its LSPs from the same router.
func (r *Router) sendResvs(changed []*lsp) {
	told := make(map[*lsp]bool)
	for _, s := range changed {
		if s.resv != nil {
			for _, b := range s.backups {
				r.sendBackupResv(s, b)
			}
		}
		if told[s] || s.resv == nil || s.lapsed {
			r.schedule(s)
			continue
		}
		group := []*lsp{s}
		if s.resv.style == message.SharedExplicit {
			group = r.sharing(s)
		}
		for _, g := range group {
			told[g] = true
			g.resv.refresh = r.now + r.jittered()
		}
		r.sendResv(group)
		for _, g := range group {
			r.schedule(g)
		}
	}
}

// sharing is the LSPs that a shared reservation is for, in the order of their numbers.
func (r *Router) sharing(s *lsp) (group []*lsp) {
	for _, other := range r.sessions[s.key.Session] {
		if other.resv != nil && other.resv.style == message.SharedExplicit && other.in == s.in &&
			other.path.hop == s.path.hop && !other.lapsed {
			group = append(group, other)
		}
	}
	slices.SortFunc(group, func(a, b *lsp) int {
		if c := a.key.Sender.Compare(b.key.Sender); c != 0 {
			return c
		}
		return int(a.key.LSP) - int(b.key.LSP)
	})
	return group
}

func (r *Router) sendResv(group []*lsp) {
	first := group[0]
	if r.awaits(place{first.in.Index, first.path.hop.Addr}) {
		return
	}
	m := message.Message{Type: message.Resv, TTL: ttl, Objects: []message.Object{first.key.Session,
		first.hopUp(), r.timeValues()}}
	if i := slices.IndexFunc(group, func(s *lsp) bool { return s.resv.confirm.IsValid() }); i >= 0 {
		m.Objects = append(m.Objects, message.ResvConfirm{Receiver: group[i].resv.confirm})
	}
	m.Objects = append(m.Objects, first.resv.style, largest(group))
	for _, s := range group {
		s.resv.confirm = netip.Addr{}
		m.Objects = append(m.Objects, s.key.filter(), s.resv.in)
		if s.path.record != nil {
			m.Objects = append(m.Objects, message.RecordRoute{Records: r.recorded(s)})
		}
	}
	r.note(true, r.number(first.in, &m), group...)
	before := len(r.out.Send)
	r.send(first.in, first.path.hop.Addr, first.in.Prefix.Addr(), first.path.hop.Addr, m)
	for i := range r.out.Send[before:] {
		r.out.Send[before+i].of = group
	}
}

// largest is the flowspec of a shared reservation.
func largest(group []*lsp) message.Flowspec {
	most := group[0].resv.flowspec
	for _, s := range group[1:] {
		if s.resv.flowspec.Bandwidth() > most.Bandwidth() {
			most = s.resv.flowspec
		}
	}
	return most
}

// hopUp is this router as the one before it sees it; the handle is that one's own.
func (s *lsp) hopUp() message.Hop {
	return message.Hop{Addr: s.in.Prefix.Addr(), Handle: s.path.hop.Handle}
}

// recorded is the way from here to the egress. Of an LSP that is protected it names the router as well as its interface
// (RFC 4561), by which it is known where a bypass ends.
func (r *Router) recorded(s *lsp) (records []message.Record) {
	var label message.Record
	own := message.Record{Addr: s.in.Prefix.Addr()}
	if s.path.protected() {
		own.Flags, label.Flags = r.protection(s), message.GlobalLabel
		records = append(records, message.Record{Addr: r.config.ID, Flags: own.Flags | message.NodeID})
	}
	records = append(records, own)
	if s.path.priority.Flags&message.LabelRecording != 0 {
		label.IsLabel, label.Label = true, uint32(s.resv.in)
		records = append(records, label)
	}
	if s.resv.record != nil {
		records = append(records, s.resv.record.Records...)
	}
	return records
}

// givenLabel is the label for the router before this one: that of before a restart, or a new one.
func (r *Router) givenLabel(s *lsp) (message.Label, bool) {
	if s.kept != nil {
		return s.kept.In, true
	}
	return r.labels.take()
}

func (r *Router) install(s *lsp) {
	e := s.entry()
	if s.kept != nil {
		if *s.kept == e {
			return
		}
		*s.kept = e
	}
	r.out.Labels = append(r.out.Labels, LabelChange{Entry: e})
}

func (s *lsp) entry() Entry {
	e := Entry{Key: s.key, HasIn: s.in != nil, HasOut: s.out != nil, In: s.resv.in, Out: s.resv.out, Next: s.next,
		Rate: s.resv.bandwidth, Shared: s.resv.style == message.SharedExplicit}
	if s.in != nil && !s.path.protected() {
		e.From = s.in.Index
	}
	if p := s.repair; p != nil { // the bypass has the bandwidth
		e.Interface, e.Next, e.Bypass = p.bypass.out.Index, p.bypass.next, p.bypass.top()
		return e
	}
	if s.out != nil {
		e.Interface, e.Bandwidth = s.out.Index, s.resv.bandwidth
	}
	return e
}

// unreserve takes the reservation of an LSP back, and leaves its path state.
func (r *Router) unreserve(s *lsp) {
	if s.resv == nil {
		r.dropKept(s)
		return
	}
	r.out.Labels = append(r.out.Labels, LabelChange{Remove: true, Entry: s.entry()})
	if s.in != nil {
		r.labels.giveBack(s.resv.in)
	}
	if s.out != nil {
		r.hold(s, nil)
	}
	delete(r.sentIDs, s.resv.sent.id)
	r.forget(s.resv.heard)
	if s.in == nil || s.out == nil {
		r.event(Down, s.key, message.ErrorSpec{}, nil)
	}
	s.resv, s.repair, s.kept, s.unsure, s.around = nil, nil, nil, false, false
	r.weigh(s)
	r.schedule(s)
	r.bypassChanged(s)
}
